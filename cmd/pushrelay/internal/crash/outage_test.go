package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/session/site"
)

// outage is a way to keep a relay from writing, and to let it again.
type outage struct {
	data    string // the folder, "" for the world's own
	block   func(w *world)
	unblock func(w *world)
	says    string // what /readyz quotes of the operating system
	total   bool   // nothing at all is written; else what is small may still find room in the file
}

// outlast lets clients work while the disk takes nothing for longer than a lease: what they ask for is put off, sessions
// stay, /readyz says why, and all of it ends once when the disk takes writes again.
func outlast(t *testing.T, o outage) {
	const lease = 5 * time.Second // on a busy machine a shorter one ends by itself
	w := newWorld(t, 2, "--lease", lease.String())
	if o.data != "" {
		w.data = o.data
	}
	late := w.daemons[1] // comes while nothing can be kept: welcome now or afterwards, as it holds nothing that is to be settled
	ends := append([]*end{w.daemons[0], w.daemons[2]}, w.sites...)
	for _, s := range w.sites {
		s.startSite()
	}
	ends[0].startDaemon()
	ends[1].startDaemon()
	w.start()
	w.listen()
	w.live(500 * time.Millisecond)
	finish := make(chan struct{})
	held := func(e *entry) bool { return e.held != nil && e.runs > 0 }
	for _, owner := range []string{"owner-a", "owner-b"} {
		e := w.newJob(w.sites[0].name)
		e.owner, e.held = owner, finish
		w.ledger.add(e)
		w.sites[0].submit(e.id)
	}
	w.until("running", 2, held)
	for _, e := range ends {
		w.connected(e)
	}
	require.Equal(t, http.StatusOK, w.ready().Status)

	o.block(w)
	w.await("unready", func() bool {
		w.publish()
		return w.ready().Status == http.StatusServiceUnavailable
	})
	if r := w.ready(); r.Status == http.StatusServiceUnavailable {
		require.Equal(t, []string{"store"}, r.Why)
		require.Contains(t, r.Store, o.says)
	}
	require.Equal(t, http.StatusOK, w.get("/healthz"))
	close(finish) // results that can't be kept just now
	if o.total {
		w.refused()
	}
	late.startDaemon()
	before := w.storeErrors()
	const watched = lease + lease/2
	w.live(watched)
	require.Less(t, w.storeErrors()-before, 100*int(watched/time.Second), "somebody tries all the time")
	require.Less(t, w.relay.log.count(`"level":"error"`), 5, "the log is flooded:\n%v", w.relay.log)
	if o.total {
		require.Equal(t, http.StatusServiceUnavailable, w.ready().Status)
	}
	for _, e := range ends {
		require.Zero(t, e.cuts.Load(), "%s lost its session\n%v", e.name, w.relay.log)
	}

	o.unblock(w)
	w.await("ready", func() bool { return w.ready().Status == http.StatusOK })
	w.connected(late)
	w.settle()
	for _, e := range w.ledger.copies() {
		require.True(t, e.held == nil || e.runs == 1, "job %s was run %d times", e.id, e.runs)
	}
	for _, e := range ends {
		require.Zero(t, e.cuts.Load(), "%s lost its session\n%v", e.name, w.relay.log)
	}
	w.faultless("in the end")
	w.finish()
}

// refused publishes a job while nothing can be kept: it is neither taken nor refused for good.
func (w *world) refused() {
	w.t.Helper()
	s := w.sites[0]
	e := w.newJob(s.name)
	e.prompt = strings.Repeat("large ", 20_000)
	w.ledger.add(e)
	ctx, cancel := context.WithTimeout(w.life, 500*time.Millisecond)
	defer cancel()
	a := s.current().Submit(ctx, w.jobOf(e))[0]
	require.ErrorIs(w.t, a.Err, site.ErrPending)
	s.submit(e.id)
}

// readiness is what /readyz answers.
type readiness struct {
	Status int
	Why    []string
	Store  string
}

func (w *world) ready() (r readiness) {
	status, body := w.ask("/readyz")
	var text struct {
		Why   []string
		Store string
	}
	require.NoError(w.t, json.Unmarshal(body, &text), "%s", body)
	return readiness{status, text.Why, text.Store}
}

func (w *world) get(path string) int {
	status, _ := w.ask(path)
	return status
}

func (w *world) ask(path string) (int, []byte) {
	w.t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + w.admin + path)
	require.NoError(w.t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(w.t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, body
}

// storeErrors answers how many calls the store has failed.
func (w *world) storeErrors() int {
	w.t.Helper()
	_, body := w.ask("/metrics")
	_, rest, found := strings.Cut(string(body), `pushrelay_hub_work_total{what="store-errors"} `)
	require.True(w.t, found)
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(text, 64)
	require.NoError(w.t, err)
	return int(n)
}

// await polls what tells of nothing by itself.
func (w *world) await(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		require.True(w.t, pause(w.life, 20*time.Millisecond))
		require.True(w.t, time.Now().Before(end), fmt.Sprintf("it doesn't become %s\n%v", what, w.relay.log))
	}
}
