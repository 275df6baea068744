package memory

import (
	"context"
	"errors"
	"testing"
	"time"

	"pushrelay/store"
	"pushrelay/wire"
)

func someStub(id string) wire.Stub {
	return wire.Stub{ID: id, Kind: "k", Owner: "o", Audience: "public", DeadlineAt: time.Now().Add(time.Hour).UnixMilli()}
}

func publish(t *testing.T, s *Store, site string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		got, err := s.Enqueue(t.Context(), site, wire.Dialect0, []wire.Stub{someStub(id)})
		if err != nil || got[0].Err != nil {
			t.Fatal(err, got)
		}
	}
}

func TestOverflowCollapsesIntoOneResync(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	slow, quick := s.Watch(store.Interest{}), s.Watch(store.Interest{Sites: []string{"other"}})
	for range maxWaiting/2 + 10 { // two events each
		publish(t, s, "site", "a")
		if _, err := s.Cancel(t.Context(), "site", []string{"a"}); err != nil {
			t.Fatal(err)
		}
		if err := s.forget("site", "a"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := slow.Wait(t.Context())
	if err != nil || len(got) != 1 || got[0].Type != store.EventResync {
		t.Fatalf("%d events, %v", len(got), err)
	}
	publish(t, s, "site", "b")
	publish(t, s, "other", "c")
	got, err = slow.Wait(t.Context())
	if err != nil || len(got) != 2 || got[0].Job != "b" || got[1].Job != "c" {
		t.Fatalf("after a resync: %v, %v", got, err)
	}
	got, err = quick.Wait(t.Context())
	if err != nil || len(got) != 1 || got[0].Job != "c" {
		t.Fatalf("of interest: %v, %v", got, err)
	}
}

// forget forgets a job whole, so that its id can be used again at once.
func (s *Store) forget(site, id string) error {
	_, err := run(s, func(m *Machine) none { m.forget(m.jobs[store.Key{Site: site, Job: id}]); return none{} })
	return err
}

func TestWaitEndsWithContextWatcherAndStore(t *testing.T) {
	s := New(Options{})
	w, v := s.Watch(store.Interest{}), s.Watch(store.Interest{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	wait := func(w store.Watcher, ctx context.Context) { _, err := w.Wait(ctx); ended <- err }
	go wait(w, ctx)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	go wait(w, t.Context())
	w.Close()
	if err := <-ended; !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	go wait(v, t.Context())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	if _, err := s.Watch(store.Interest{}).Wait(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	if _, err := s.Stats(t.Context()); !errors.Is(err, store.ErrUnavailable) || s.Close() != nil {
		t.Fatal(err)
	}
	w.Close()
}

func TestWatcherThatDoesNotReadKeepsNoGrowingMemory(t *testing.T) {
	w := newWatcher(store.Interest{}, func(*watcher) {})
	batch := make([]store.Event, 1000)
	for range 10 * maxWaiting / len(batch) {
		w.publish(batch)
	}
	if len(w.buf) != 1 || cap(w.buf) > idleBuffer {
		t.Fatalf("%d of %d kept", len(w.buf), cap(w.buf))
	}
}
