package endtoend

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/hub"
	"pushrelay/session"
	"pushrelay/wire"
)

// siege is a world whose relay is watched while somebody who is authenticated attacks it.
type siege struct {
	*world
	budget *session.Budget
	ends   *endings
}

// endings counts how sessions ended.
type endings struct {
	mu   sync.Mutex
	seen map[session.Reason]int
}

// Opened is session.Observer's.
func (*endings) Opened(string) {}

// Refused is session.Observer's.
func (*endings) Refused(string) {}

// Ended is session.Observer's.
func (e *endings) Ended(_ string, r session.Reason, _ session.Summary) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[r]++
}

func (e *endings) count(r session.Reason) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen[r]
}

func besiege(t *testing.T) *siege {
	t.Helper()
	s := &siege{budget: session.NewBudget(64 << 20), ends: &endings{seen: map[session.Reason]int{}}}
	s.world = newWorld(t, hub.Settings{}, func(cfg *session.ServerConfig, _ *net.Listener) {
		cfg.Budget, cfg.Observer = s.budget, s.ends
	})
	return s
}

// stands checks, after an attack, that no handler failed, all memory came back, and an honest pair is served.
func (s *siege) stands() {
	t := s.t
	t.Helper()
	blog, in, _ := s.site("blog") // who attacked, and is honest now
	s.daemon("d3", echo)
	want := prompts("after", 3)
	s.submit(blog, "bob", want)
	s.answers(in, want)
	s.log.until(t, "the budget is free", func() bool { return s.budget.Used() == 0 })
	assert.Zero(t, s.ends.count(session.ReasonInternal), "a handler failed")
}

// badFrame is a frame, and how the relay answers it: with an error code, with an answer that isn't an error, with the end of
// the session, or with silence.
type badFrame struct {
	name  string
	frame string
	code  wire.ErrorCode       // of the error frame
	close websocket.StatusCode // of the end
}

const fine = wire.ErrorCode("") // answered, and not by an error

func pairs(n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(`{"jobId":"j","leaseId":"l"},`, n), ",") + "]"
}

func fetchOf(job string) string {
	return fmt.Sprintf(`{"type":"fetch","id":"q","grant":{"jobId":"%s","leaseId":"l"}}`, job)
}

func bothRoles() []badFrame {
	deep := strings.Repeat("[", 15_000)
	return []badFrame{
		{"garbage", "\x00\x01\x02", "", 4400},
		{"no object", `[]`, "", 4400},
		{"no type", `{}`, "", 4400},
		{"type of another kind", `{"type":5}`, "", 4400},
		{"empty type", `{"type":""}`, "", 4400},
		{"two types", `{"type":"cancel","type":"fetch","id":"q"}`, "", 4400},
		{"not UTF-8", "{\"type\":\"fetch\",\"id\":\"\xff\"}", "", 4400},
		{"half a surrogate", `{"type":"\ud800","id":"q"}`, "", 4400},
		{"endless nesting", `{"type":"x","y":` + deep, "", 4400},
		{"one byte too long", `{"type":"x","y":"` + strings.Repeat("a", wire.MaxTextBytes-18) + `"}`, "", 1009},
		{"unknown type", `{"type":"x","id":"q"}`, wire.CodeBadRequest, 0},
		{"a hello again", `{"type":"hello"}`, wire.CodeBadRequest, 0},
		{"a welcome", `{"type":"welcome"}`, wire.CodeBadRequest, 0},
		{"credit below zero", `{"type":"credit","stream":1,"bytes":-1}`, "", 4400},
		{"no credit", `{"type":"credit","stream":1,"bytes":0}`, "", 4400},
		{"huge credit", `{"type":"credit","stream":1,"bytes":1e30}`, "", 4400},
		{"credit of too much", `{"type":"credit","stream":1,"bytes":8388609}`, "", 4400},
		{"credit for no stream", `{"type":"credit","stream":-1,"bytes":1}`, "", 4400},
		{"credit for a stream too far", `{"type":"credit","stream":4294967296,"bytes":1}`, "", 4400},
	}
}

func daemonFrames() []badFrame {
	return append(bothRoles(), []badFrame{
		{"no id", `{"type":"fetch","grant":{"jobId":"j","leaseId":"l"}}`, wire.CodeBadRequest, 0},
		{"empty id", `{"type":"heartbeat","id":"","activeLeases":[]}`, wire.CodeBadRequest, 0},
		{"a number for an id", `{"type":"heartbeat","id":7,"activeLeases":[]}`, wire.CodeBadRequest, 0},
		{"the longest id", `{"type":"heartbeat","id":"` + strings.Repeat("i", 64) + `","activeLeases":[]}`, fine, 0},
		{"an id too long", `{"type":"heartbeat","id":"` + strings.Repeat("i", 65) + `","activeLeases":[]}`, wire.CodeBadRequest, 0},
		{"two ids", `{"type":"fetch","id":"q","grant":{"jobId":"j","leaseId":"l"},"id":"q"}`, wire.CodeBadRequest, 0},
		{"nested leases", `{"type":"heartbeat","id":"q","activeLeases":` + strings.Repeat("[", 15_000), wire.CodeBadRequest, 0},
		{"leases of another kind", `{"type":"heartbeat","id":"q","activeLeases":{"a":1}}`, wire.CodeBadRequest, 0},
		{"null leases", `{"type":"heartbeat","id":"q","activeLeases":null}`, wire.CodeBadRequest, 0},
		{"as many leases as may be", `{"type":"heartbeat","id":"q","activeLeases":` + pairs(1024) + `}`, fine, 0},
		{"a lease too many", `{"type":"heartbeat","id":"q","activeLeases":` + pairs(1025) + `}`, wire.CodeBadRequest, 0},
		{"no job id", fetchOf(""), wire.CodeBadRequest, 0},
		{"the shortest job id", fetchOf("j"), wire.CodeNotFound, 0},
		{"the longest job id", fetchOf(strings.Repeat("j", 256)), wire.CodeNotFound, 0},
		{"a job id too long", fetchOf(strings.Repeat("j", 257)), wire.CodeBadRequest, 0},
		{"a zero in a job id", fetchOf(`j\u0000`), wire.CodeBadRequest, 0},
		{"as many grants as may be", `{"type":"accept","id":"q","grants":` + pairs(256) + `}`, fine, 0},
		{"a grant too many", `{"type":"accept","id":"q","grants":` + pairs(257) + `}`, wire.CodeBadRequest, 0},
		{"releases too many", `{"type":"release","id":"q","reason":"shutdown","grants":` + pairs(257) + `}`, wire.CodeBadRequest, 0},
		{"another reason", `{"type":"release","id":"q","reason":"whim","grants":[]}`, wire.CodeBadRequest, 0},
		{"no slots", `{"type":"ready","id":"q","capabilities":[],"slots":0,"paused":false}`, wire.CodeBadRequest, 0},
		{"slots below zero", `{"type":"ready","id":"q","capabilities":[],"slots":-9223372036854775808,"paused":false}`, wire.CodeBadRequest, 0},
		{"slots too many", `{"type":"ready","id":"q","capabilities":[],"slots":65,"paused":false}`, wire.CodeBadRequest, 0},
		{"half a slot", `{"type":"ready","id":"q","capabilities":[],"slots":1.5,"paused":false}`, wire.CodeBadRequest, 0},
		{"infinite slots", `{"type":"ready","id":"q","capabilities":[],"slots":1e999,"paused":false}`, wire.CodeBadRequest, 0},
		{"a result of nothing", `{"type":"result","id":"q","grant":{"jobId":"j","leaseId":"l"},"disposition":"ok","envelope":{}}`, wire.CodeBadRequest, 0},
		{"a result without envelope", `{"type":"result","id":"q","grant":{"jobId":"j","leaseId":"l"},"disposition":"ok"}`, wire.CodeBadRequest, 0},
		{"a site's request", `{"type":"enqueue","id":"q","stubs":[{}]}`, wire.CodeBadRequest, 0},
	}...)
}

func siteFrames() []badFrame {
	stubs := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`{},`, n), ",") + "]" }
	ids := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat(`"j",`, n), ",") + "]" }
	return append(bothRoles(), []badFrame{
		{"no stubs", `{"type":"enqueue","id":"q","stubs":[]}`, wire.CodeBadRequest, 0},
		{"as many stubs as may be", `{"type":"enqueue","id":"q","stubs":` + stubs(256) + `}`, fine, 0},
		{"a stub too many", `{"type":"enqueue","id":"q","stubs":` + stubs(257) + `}`, wire.CodeBadRequest, 0},
		{"stubs of all kinds", `{"type":"enqueue","id":"q","stubs":[null,1,"a",[],{},{"id":"a"},{"id":{}},true]}`, fine, 0},
		{"no jobs to cancel", `{"type":"cancel","id":"q","jobIds":[]}`, wire.CodeBadRequest, 0},
		{"as many to cancel as may be", `{"type":"cancel","id":"q","jobIds":` + ids(256) + `}`, fine, 0},
		{"one too many to cancel", `{"type":"cancel","id":"q","jobIds":` + ids(257) + `}`, wire.CodeBadRequest, 0},
		{"an id too long to cancel", `{"type":"cancel","id":"q","jobIds":["` + strings.Repeat("j", 257) + `"]}`, wire.CodeBadRequest, 0},
		{"collected too many", `{"type":"collected","id":"q","grants":` + pairs(257) + `}`, wire.CodeBadRequest, 0},
		{"collected nothing", `{"type":"collected","id":"q","grants":null}`, wire.CodeBadRequest, 0},
		{"a seal of nothing", `{"type":"seal","id":"q","jobId":"j","leaseId":"l","envelope":{}}`, wire.CodeBadRequest, 0},
		{"a daemon's request", `{"type":"heartbeat","id":"q","activeLeases":[]}`, wire.CodeBadRequest, 0},
	}...)
}

// TestBadFrames sends one bad frame after the other. Each is answered as the protocol says; those that end the session end
// that one alone, and those that don't leave it usable.
func TestBadFrames(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	for role, frames := range map[string][]badFrame{wire.RoleDaemon: daemonFrames(), wire.RoleSite: siteFrames()} {
		name := map[string]string{wire.RoleDaemon: "d3", wire.RoleSite: "blog"}[role]
		r := s.raw(role, name, nil)
		for _, f := range frames {
			require.NoError(t, r.write(f.frame), f.name)
			if f.close != 0 {
				e := r.end()
				assert.Equal(t, f.close, e.Code, "%s %s: %s", role, f.name, e.Reason)
				r = s.raw(role, name, nil)
				continue
			}
			answer := r.until(f.name, func(x said, _ []byte) bool { return x.Type == wire.TypeError || x.Type == wire.TypeReply })
			assert.Equal(t, f.code, code(answer), "%s %s: %s", role, f.name, answer)
			if strings.Contains(f.frame, `"id":"q"`) {
				assert.Contains(t, string(answer), `"re":"q"`, "%s %s", role, f.name)
			}
		}
		r.hangUp()
	}
	s.stands()
}

// clientFrame is a masked frame as a client sends it; first is its first byte as it is.
func clientFrame(first byte, payload []byte) []byte {
	out := []byte{first}
	switch n := len(payload); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(n))
	}
	var key [4]byte
	binary.BigEndian.PutUint32(key[:], rand.Uint32())
	out = append(out, key[:]...)
	for i, b := range payload {
		out = append(out, b^key[i%4])
	}
	return out
}
