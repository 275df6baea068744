package hub

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"pushrelay/hub/projection"
	"pushrelay/session"
	"pushrelay/store/memory"
	"pushrelay/wire"
)

// benchLink hands frames to its client's goroutine.
type benchLink struct {
	id  string
	in  chan []byte
	end chan struct{}
}

func (l *benchLink) ID() string { return l.id }
func (l *benchLink) Push(f []byte) {
	select {
	case l.in <- f:
	case <-l.end:
	}
}
func (l *benchLink) End(session.Reason, string)                    {}
func (l *benchLink) Received() int64                               { return 0 }
func (l *benchLink) PushBulkThen(load session.Loader, over func()) { l.PushBulk(thenOver(load, over)) }

func (l *benchLink) PushBulk(load session.Loader) {
	pieces, err := load(context.Background())
	if err == nil && pieces != nil {
		l.Push(slices.Concat(pieces...))
	}
}

// BenchmarkLives measures whole lives through the hub and the memory store, with clients that answer at once: what the
// transport costs comes on top.
func BenchmarkLives(b *testing.B) {
	for _, daemons := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("daemons=%d", daemons), func(b *testing.B) { benchLives(b, daemons) })
	}
}

func benchLives(b *testing.B, daemons int) {
	shop := newParty(b, "shop")
	e := new(projection.Example).Site("shop", shop.identity)
	var devices []party
	for i := range daemons {
		d := newParty(b, fmt.Sprint("d", i))
		devices = append(devices, d)
		owner := fmt.Sprint("o", i)
		e.Device(owner, fmt.Sprint("d", i), d.identity).Consent(owner, "shop")
	}
	raw, err := e.Marshal()
	require.NoError(b, err)
	p, err := projection.Parse(raw)
	require.NoError(b, err)
	st := memory.New(memory.Options{})
	h, err := New(Config{Store: st, Projection: projection.NewHolder(p), Log: zerolog.Nop()})
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = h.Run(ctx) })

	dial := func(role, name string, key party) (*benchLink, Peer) {
		l := &benchLink{id: name, in: make(chan []byte, 4096), end: make(chan struct{})}
		peer, _, err := h.Admit(ctx, Arrival{Link: l, Role: role, Caller: name, Dialect: wire.Dialect0, Key: key.key, Hello: &wire.HelloBody{
			Capabilities: []byte(capabilities0), Slots: 16,
		}})
		require.NoError(b, err)
		return l, peer
	}
	deadline := time.Now().Add(time.Hour).UnixMilli()
	var began sync.Map
	took := make([]time.Duration, 0, b.N)
	finished := make(chan struct{})
	window := make(chan struct{}, 8)
	site, sitePeer := dial(wire.RoleSite, "shop", shop)
	handle := func(peer Peer, t wire.FrameType, frame []byte) {
		r := &request{t: t, frame: frame}
		peer.Handle(ctx, r)
		if r.err != nil {
			b.Error(r.err)
		}
	}
	for i, d := range devices {
		l, peer := dial(wire.RoleDaemon, fmt.Sprint("d", i), d)
		result := wire.AppendEnvelope(nil, wire.Envelope{RecipientKeyID: shop.keyID, SenderKeyID: d.keyID, Direction: wire.DirectionResult, DeadlineAt: deadline}, "AAAA")
		all.Go(func() { benchDaemon(ctx, l, peer, result, handle) })
	}
	all.Go(func() {
		benchSite(ctx, site, sitePeer, shop, devices, deadline, handle, func(id string) {
			if at, ok := began.Load(id); ok {
				took = append(took, time.Since(at.(time.Time))) //nolint:forcetypeassert // stored below
			}
			<-window
			if len(took) == b.N {
				close(finished)
			}
		})
	})

	b.ReportAllocs()
	b.ResetTimer()
	all.Go(func() {
		for i := range b.N {
			window <- struct{}{} // a site keeps so many jobs under way
			id := fmt.Sprint("j", i)
			stub := wire.AppendStub(nil, wire.Stub{
				ID: id, Kind: "llm.generate", Owner: fmt.Sprint("o", i%daemons), Site: shop.keyID, Audience: "self",
				SizeClass: "small", DeadlineAt: deadline,
			})
			began.Store(id, time.Now())
			frame := append([]byte(`{"type":"enqueue","id":"1","stubs":[`), stub...)
			handle(sitePeer, wire.TypeEnqueue, append(frame, ']', '}'))
		}
	})
	<-finished
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lives/s")
	cancel()
	close(site.end)
	all.Wait()
	_ = st.Close()
}

type handler func(peer Peer, t wire.FrameType, frame []byte)

func benchDaemon(ctx context.Context, l *benchLink, peer Peer, result []byte, handle handler) {
	for {
		var frame []byte
		select {
		case <-ctx.Done():
			return
		case frame = <-l.in:
		}
		head, _ := wire.PeekHead(frame)
		switch head.Type {
		case wire.TypeClaimed:
			f, _ := wire.Decode[struct {
				Jobs []struct {
					ID    string          `json:"id"`
					Lease wire.ClaimLease `json:"lease"`
				} `json:"jobs"`
			}](frame)
			var grants []wire.Grant
			for _, j := range f.Jobs {
				grants = append(grants, wire.Grant{JobID: j.ID, LeaseID: j.Lease.ID})
			}
			text, _ := wire.Encode(wire.Grants{Head: wire.Head{Type: wire.TypeAccept, ID: "1"}, Grants: grants})
			handle(peer, wire.TypeAccept, text)
		case wire.TypePayload:
			f, _ := wire.Decode[wire.Payload](frame)
			text, _ := wire.Encode(wire.Result{
				Head: wire.Head{Type: wire.TypeResult, ID: "1"}, Grant: wire.Grant{JobID: f.JobID, LeaseID: f.LeaseID},
				Envelope: result, Disposition: wire.DispositionOK,
			})
			handle(peer, wire.TypeResult, text)
		}
	}
}

func benchSite(
	ctx context.Context, l *benchLink, peer Peer, shop party, devices []party, deadline int64, handle handler, done func(id string),
) {
	payloads := map[string][]byte{}
	for i, d := range devices {
		payloads[fmt.Sprint("d", i)] = wire.AppendEnvelope(nil, wire.Envelope{
			RecipientKeyID: d.keyID, SenderKeyID: shop.keyID, Direction: wire.DirectionPayload, DeadlineAt: deadline,
		}, "AAAA")
	}
	for {
		var frame []byte
		select {
		case <-ctx.Done():
			return
		case frame = <-l.in:
		}
		head, _ := wire.PeekHead(frame)
		switch head.Type {
		case wire.TypeSealRequest:
			f, _ := wire.Decode[wire.SealRequest](frame)
			for _, j := range f.Jobs {
				text, _ := wire.Encode(wire.Seal{
					Head: wire.Head{Type: wire.TypeSeal, ID: "1"}, JobID: j.JobID, LeaseID: j.LeaseID, Envelope: payloads[j.RunnerID],
				})
				handle(peer, wire.TypeSeal, text)
			}
		case wire.TypeResults:
			f, _ := wire.Decode[wire.Results](frame)
			var grants []wire.Grant
			for _, j := range f.Jobs {
				grants = append(grants, wire.Grant{JobID: j.JobID, LeaseID: j.LeaseID})
			}
			text, _ := wire.Encode(wire.Grants{Head: wire.Head{Type: wire.TypeCollected, ID: "1"}, Grants: grants})
			handle(peer, wire.TypeCollected, text)
			for _, g := range grants {
				done(g.JobID)
			}
		}
	}
}
