package bench

import (
	"strings"
	"testing"

	"pushrelay/wire"
)

func live(l *ledger, id string) {
	for s := range steps {
		l.took(id, s)
	}
}

func TestLedgerCountsWholeLives(t *testing.T) {
	l := newLedger(2, 3)
	live(l, jobID(0, 0))
	live(l, jobID(1, 0))
	l.took(jobID(1, 1), stepEnqueued)
	l.took(jobID(1, 1), stepNotice)
	got, err := l.settle([]int{1, 2})
	if err != nil || got != (counts{lives: 2, dropped: 1}) {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestLedgerFindsWhatIsMissing(t *testing.T) {
	for missing := range steps {
		l := newLedger(1, 1)
		for s := range steps {
			if s != missing {
				l.took(jobID(0, 0), s)
			}
		}
		if _, err := l.settle([]int{1}); err == nil {
			t.Errorf("a life without step %d counts as whole", missing)
		}
	}
}

func TestLedgerFindsWhatIsDoubled(t *testing.T) {
	l := newLedger(1, 1)
	live(l, jobID(0, 0))
	l.took(jobID(0, 0), stepPayload)
	if _, err := l.settle([]int{1}); err == nil || !strings.Contains(err.Error(), "twice") {
		t.Fatalf("a payload that came twice gives %v", err)
	}
}

func TestLedgerRefusesForeignJobs(t *testing.T) {
	for _, id := range []string{"", "b", "b0", "b-0", "b0-1", "b1-0", "b0--1", "x0-0x"} {
		l := newLedger(1, 1)
		l.took(id, stepEnqueued)
		if _, err := l.settle([]int{0}); err == nil {
			t.Errorf("job %q is taken for one of the bench", id)
		}
	}
}

func TestEnvelopesAreOfTheBaselinesSize(t *testing.T) {
	w, err := newWorld(t.TempDir(), 2, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.seal()
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.sites {
		for j, d := range w.daemons {
			for _, e := range []wire.Envelope{s.payloads[i][j], s.results[i][j]} {
				if n := len(e.Raw); n < envelopeBytes || n > envelopeBytes+8 {
					t.Errorf("an envelope has %d bytes, want about %d", n, envelopeBytes)
				}
			}
			if s.payloads[i][j].RecipientKeyID != d.keyID || s.results[i][j].RecipientKeyID != w.sites[i].keyID {
				t.Error("an envelope is sealed to somebody else")
			}
		}
	}
}
