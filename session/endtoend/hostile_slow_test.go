package endtoend

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"pushrelay/session"
	"pushrelay/session/site"
	"pushrelay/wire"
)

// latencies lives whole jobs, one after the other, and answers how long the slowest of a hundred take.
func (s *siege) latencies(shop *site.Site, in *inbox, prefix string, n int) (p99 time.Duration) {
	s.t.Helper()
	all := make([]time.Duration, n)
	for i := range all {
		began := time.Now()
		s.submit(shop, "ada", map[string]string{fmt.Sprint(prefix, "-", i): "x"})
		r := next(s.world, in.results)
		require.True(s.t, r.Verified, "%v", r.Err)
		all[i] = time.Since(began)
	}
	slices.Sort(all)
	return all[n*99/100]
}

// deaf dials with small buffers and never reads again.
func (s *siege) deaf(role, name string) *bare {
	s.t.Helper()
	d := newDialer()
	d.wrap = func(c net.Conn) net.Conn {
		_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
		return c
	}
	r, err := s.dialRaw(d, role, name, nil)
	require.NoError(s.t, err)
	return &bare{r, d.conns[0]}
}

// TestSlowConsumers has sessions that ask for much and read nothing. Those are ended as too slow; who waits beside them
// doesn't notice.
func TestSlowConsumers(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	shop, in, _ := s.site("shop")
	s.daemon("d1", echo)
	before := s.latencies(shop, in, "before", 60)

	const slow = 8
	one := clientFrame(0x80|opText, []byte(`{"type":"nonsense","id":"`+strings.Repeat("q", wire.MaxRequestID)+`"}`))
	for range slow { // answers of megabytes, which nobody takes
		r := s.deaf(wire.RoleSite, "blog")
		r.bytes(bytes.Repeat(one, 6_000))
	}
	with := s.latencies(shop, in, "with", 60)
	t.Logf("the slowest of a hundred: %v alone, %v beside %d that read nothing", before, with, slow)
	assert.Less(t, with, 10*before+500*time.Millisecond)
	s.log.until(t, "all are ended as too slow", func() bool { return s.ends.count(session.ReasonTooSlow) >= slow })
	assert.Less(t, s.budget.Peak(), int64(16<<20), "what nobody reads isn't held")
	s.stands()
}

// TestNoCredit accepts jobs with large payloads and gives no credit for them: they aren't held for it, and its jobs go to
// another device once it is back without them.
func TestNoCredit(t *testing.T) {
	t.Parallel()
	s := besiege(t)
	shop, in, _ := s.site("shop")
	r := s.raw(wire.RoleDaemon, "d2", nil)
	want := map[string]string{}
	for i := range 4 {
		want[fmt.Sprint("large-", i)] = strings.Repeat("0123456789", 60_000)
	}
	s.submit(shop, "ada", want)
	var all []wire.Grant
	for len(all) < len(want) {
		got := r.claims()
		all = append(all, got...)
		require.NoError(t, r.write(`{"type":"accept","id":"a",`+grants("grants", got...)+`}`))
	}
	s.log.until(t, "payloads are sealed", func() bool { return s.log.count("shop", "sealed", "large-0") > 0 })
	r.until("the answer", func(x said, _ []byte) bool { return x.Re == "a" })
	assert.LessOrEqual(t, s.budget.Peak(), int64(32<<20))
	s.daemon("d1", echo)
	r.hangUp()
	back := s.raw(wire.RoleDaemon, "d2", func(b *wire.HelloBody) { b.Paused = true })
	assert.Empty(t, back.welcome.Lost)
	s.answers(in, want)
	back.hangUp()
}
