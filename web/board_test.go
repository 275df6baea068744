package web

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/hub"
)

func everything(rows int) look { return look{Rows: rows} }

func TestAViewerGetsASnapshotAndThenChanges(t *testing.T) {
	inWorld(t, newShelf(3), func(w *world) {
		s := watch(t, w.ctx, w.open(), everything(10))
		w.pass(5 * time.Second)
		got := s.take()
		require.True(t, got[0].Fresh)
		for _, u := range got[1:] {
			require.False(t, u.Fresh)
		}
		require.Empty(t, s.take(), "nothing changes, nothing is told")

		w.src.set(1, func(j *hub.JobView) { j.State, j.Runner, j.DeviceKeyID = hub.JobRunning, "d1", "BYOLLM-X" })
		w.rec.apply([]hub.Change{change(hub.ChangeRunning, "shop", "job-000001", dawn)})
		w.pass(time.Second)
		got = s.take()
		require.LessOrEqual(t, len(got), 2)
		for _, u := range got {
			require.Len(t, u.Rows.Order, 3)
			require.Len(t, u.Rows.Changed, 1, "only what changed")
			require.Equal(t, "running", u.Rows.Changed[0].State)
		}
		require.Equal(t, "BYOLLM-X", got[len(got)-1].Rows.Changed[0].DeviceKeyID, "with what the change itself doesn't tell")
	})
}

func TestAtMostTenUpdatesASecond(t *testing.T) {
	inWorld(t, newShelf(1), func(w *world) {
		s := watch(t, w.ctx, w.open(), everything(10))
		w.pass(3 * time.Second)
		s.take()
		began := time.Now()
		for i := range 1000 {
			w.enqueue(fmt.Sprint("new-", i))
			w.pass(2 * time.Millisecond)
		}
		got := s.take()
		require.LessOrEqual(t, len(got), int(time.Since(began)/pace)+1)
		require.Greater(t, len(got), 10)
		for i := 1; i < len(got); i++ {
			require.GreaterOrEqual(t, got[i].at.Sub(got[i-1].at), pace)
		}
		w.pass(time.Second)
		require.Equal(t, 1001, w.open().loaded())
	})
}

func TestAHiddenViewerHasNoBacklog(t *testing.T) {
	inWorld(t, newShelf(5), func(w *world) {
		s := watch(t, w.ctx, w.open(), everything(10))
		w.pass(3 * time.Second)
		s.take()
		s.ask(look{Rows: 10, Hidden: true})
		w.pass(time.Second)
		s.take()
		for i := range 10_000 {
			w.rec.apply([]hub.Change{change(hub.ChangeCancel, "shop", fmt.Sprintf("job-%06d", i%5), time.Now())})
		}
		w.pass(10 * time.Second)
		require.LessOrEqual(t, s.messages(), 12, "beats only")
		require.Empty(t, s.take())
		require.LessOrEqual(t, w.src.read("job-000001"), 3, "nobody sees it, nobody reads it")
		s.ask(everything(10))
		w.pass(300 * time.Millisecond)
		got := s.take()
		require.True(t, got[0].Fresh)
		require.Len(t, got[0].Rows.Changed, 5)
		require.LessOrEqual(t, len(got), 3)
	})
}

func TestASlowViewerGetsEverythingAfresh(t *testing.T) {
	inWorld(t, newShelf(5), func(w *world) {
		b := w.open()
		fast := watch(t, w.ctx, b, everything(10))
		slowly := newViewer()
		slowly.ask(everything(10))
		var mu sync.Mutex
		var got []shown
		go func() {
			_ = slowly.show(w.ctx, b, time.Now, func(u update) error {
				<-time.After(3 * time.Second) // its link takes that long
				mu.Lock()
				defer mu.Unlock()
				got = append(got, parseUpdate(t, u))
				return nil
			})
		}()
		w.pass(3 * time.Second)
		fast.take()
		for i := range 100 {
			w.enqueue(fmt.Sprint("new-", i))
			w.pass(100 * time.Millisecond)
		}
		require.Greater(t, len(fast.take()), 50, "the others don't wait for it")
		mu.Lock()
		all := slices.Clone(got)
		mu.Unlock()
		require.LessOrEqual(t, len(all), 6, "and what it missed isn't kept for it")
		for _, u := range all {
			require.True(t, u.Fresh)
		}
	})
}

func TestRowsInSightAreReadAgain(t *testing.T) {
	inWorld(t, newShelf(1000), func(w *world) {
		w.src.set(0, func(j *hub.JobView) { j.State, j.LeaseEnds = hub.JobRunning, dawn })
		w.src.set(999, func(j *hub.JobView) { j.State, j.LeaseEnds = hub.JobRunning, dawn })
		s := watch(t, w.ctx, w.open(), everything(10))
		w.pass(5 * time.Second)
		s.take()
		w.src.set(0, func(j *hub.JobView) { j.LeaseEnds = dawn.Add(time.Minute) }) // a heartbeat: nothing is told
		w.pass(heldAgain + time.Second)
		got := s.take()
		require.Equal(t, dawn.Add(time.Minute).UnixMilli(), got[0].Rows.Changed[0].LeaseEnds)
		require.Zero(t, w.src.read("job-000999"), "out of sight")
		require.LessOrEqual(t, w.src.read("job-000001"), 1, "what waits changes seldom")
	})
}

func TestWhyIsToldOfRowsInSight(t *testing.T) {
	inWorld(t, newShelf(2), func(w *world) {
		w.src.why = []hub.Obstacle{{Code: hub.ObstacleBusy, Count: 1, Of: 1}}
		s := watch(t, w.ctx, w.open(), everything(10))
		w.pass(3 * time.Second)
		got := s.take()
		require.Equal(t, hub.ObstacleBusy, got[len(got)-1].Rows.Changed[0].Why[0].Code)
		w.src.mu.Lock()
		w.src.why = []hub.Obstacle{{Code: hub.Next}}
		w.src.mu.Unlock()
		w.pass(2 * time.Second)
		got = s.take()
		require.Equal(t, hub.Next, got[len(got)-1].Rows.Changed[0].Why[0].Code)
	})
}

func TestFiltersAndWindows(t *testing.T) {
	inWorld(t, newShelf(500), func(w *world) {
		w.src.set(7, func(j *hub.JobView) { j.State, j.Runner = hub.JobRunning, "Odd-Runner" })
		b := w.open()
		s := watch(t, w.ctx, b, look{Rows: 3, From: 498})
		w.pass(3 * time.Second)
		see := func(l look) shown {
			s.take()
			s.ask(l)
			w.pass(time.Second)
			got := s.take()
			require.NotEmpty(t, got)
			return got[len(got)-1]
		}
		ids := func(u shown) (out []string) {
			for _, j := range u.Rows.Changed {
				out = append(out, j.Job)
			}
			return out
		}
		require.Equal(t, []string{"job-000000", "job-000001"}, ids(see(look{Rows: 2})))
		require.Equal(t, []string{"job-000499", "job-000498"}, ids(see(look{Rows: 2, Newest: true})))
		u := see(look{Rows: 2, From: 600})
		require.Equal(t, 498, u.Rows.From, "moved within")
		require.Equal(t, 500, u.Rows.Total)
		u = see(look{Rows: 9, Text: "ODD"})
		require.Equal(t, []string{"job-000007"}, ids(u))
		require.Equal(t, 1, u.Rows.Total)
		require.Zero(t, see(look{Rows: 9, States: []string{"ready", "none"}}).Rows.Total)
		require.Equal(t, 1, see(look{Rows: 9, States: []string{"running", "ready"}}).Rows.Total)
		require.Equal(t, 100, see(look{Rows: 9, Text: "job-0001"}).Rows.Total)
		b.mu.Lock()
		require.Len(t, b.views, 1, "filters that nobody has are forgotten")
		b.mu.Unlock()
	})
}

func TestEndedRowsFadeAndGo(t *testing.T) {
	inWorld(t, newShelf(4), func(w *world) {
		b := w.open()
		s := watch(t, w.ctx, b, everything(10))
		w.pass(3 * time.Second)
		dropped := change(hub.ChangeDropped, "shop", "job-000001", time.Now())
		dropped.Why = "deadline"
		w.rec.apply([]hub.Change{
			change(hub.ChangeCollected, "shop", "job-000000", time.Now()), dropped, change(hub.ChangeCollected, "shop", "job-000001", time.Now()),
		})
		s.take()
		w.pass(time.Second)
		got := s.take()
		require.Len(t, got[0].Rows.Changed, 2)
		require.Equal(t, "collected", got[0].Rows.Changed[0].State)
		require.Equal(t, "dropped", got[0].Rows.Changed[1].State)
		require.Equal(t, "deadline", got[0].Rows.Changed[1].Dropped)
		w.pass(fadeFor)
		got = s.take()
		require.Equal(t, 3, got[len(got)-1].Rows.Total)
		w.pass(dropFor)
		require.Equal(t, 2, b.loaded())

		for i := range 3 * maxGone {
			id := fmt.Sprint("quick-", i)
			w.rec.apply([]hub.Change{change(hub.ChangeQueued, "shop", id, time.Now()), change(hub.ChangeCollected, "shop", id, time.Now())})
		}
		require.LessOrEqual(t, b.loaded(), 2+maxGone)
		b.mu.Lock()
		require.LessOrEqual(t, len(b.order), 2*maxGone+fewDead+10, "dead rows don't pile up")
		b.mu.Unlock()
	})
}

// A result whose retention ended goes without a word.
func TestARowThatIsGoneWhenItIsReadGoes(t *testing.T) {
	inWorld(t, newShelf(2), func(w *world) {
		b := w.open()
		watch(t, w.ctx, b, everything(10))
		w.pass(3 * time.Second)
		w.src.mu.Lock()
		w.src.jobs = w.src.jobs[:1]
		w.src.mu.Unlock()
		w.pass(restAgain + 2*time.Second)
		require.Equal(t, 1, b.loaded())
	})
}

func TestAnOutageOfTheStoreIsSurvived(t *testing.T) {
	inWorld(t, newShelf(600), func(w *world) {
		w.src.fail = true
		b := w.open()
		watch(t, w.ctx, b, everything(10))
		w.pass(5 * time.Second)
		require.Zero(t, b.loaded())
		w.src.mu.Lock()
		w.src.fail = false
		w.src.mu.Unlock()
		w.pass(5 * time.Second)
		require.Equal(t, 600, b.loaded())
	})
}

func TestMissedChangesReadEverythingAgain(t *testing.T) {
	inWorld(t, newShelf(600), func(w *world) {
		b := w.open()
		s := watch(t, w.ctx, b, everything(10))
		w.pass(5 * time.Second)
		s.take()
		w.src.set(0, func(j *hub.JobView) { j.State = hub.JobRunning })
		w.rec.apply([]hub.Change{{Type: hub.ChangeResync, At: time.Now()}})
		w.pass(5 * time.Second)
		require.Equal(t, 600, b.loaded())
		got := s.take()
		require.NotEmpty(t, got)
		require.Equal(t, 600, got[len(got)-1].Rows.Total)
	})
}

// Boards share one bound of rows.
func TestBoardsHaveABound(t *testing.T) {
	src := newShelf(1000)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		rec := newRecorder()
		b := newBoard("shop", src, rec, newRoom(700))
		rec.attend(b)
		var loops sync.WaitGroup
		loops.Go(func() { b.read(ctx) })
		<-time.After(5 * time.Second)
		synctest.Wait()
		require.Equal(t, 700, b.loaded())
		require.True(t, b.load.full && b.load.over)
		rec.apply([]hub.Change{change(hub.ChangeQueued, "shop", "new", time.Now())})
		require.Equal(t, 700, b.loaded())
		require.LessOrEqual(t, src.pages, 4, "what has no room isn't read")
		cancel()
		loops.Wait()
		b.close()
		require.EqualValues(t, 700, b.room.left.Load())
	})
}

func TestHistories(t *testing.T) {
	inWorld(t, newShelf(2), func(w *world) {
		w.rec.apply(life("shop", "ended", dawn))
		s := watch(t, w.ctx, w.open(), look{Rows: 5, Job: "job-000001"})
		see := func(job string) detailJSON {
			s.ask(look{Rows: 5, Job: job})
			w.pass(3 * time.Second)
			var d *detailJSON
			for _, u := range s.take() {
				if u.Job != nil && u.Job.ID == job {
					d = u.Job
				}
			}
			require.NotNil(t, d, job)
			return *d
		}
		d := see("job-000001")
		require.Equal(t, "queued", d.Job.State)
		require.Nil(t, d.Timeline)
		w.rec.apply([]hub.Change{change(hub.ChangeCancel, "shop", "job-000001", time.Now())})
		w.pass(time.Second)
		got := s.take()
		require.Len(t, got[len(got)-1].Job.Timeline.Steps, 1, "it follows")

		d = see("ended")
		require.Nil(t, d.Job, "it has no row, and the store forgot it")
		require.Len(t, d.Timeline.Steps, 7)
		require.False(t, d.Missing)
		require.True(t, see("never").Missing)
		require.Equal(t, "queued", see("job-000000").Job.State)
	})
}

func TestTheListOfSites(t *testing.T) {
	inWorld(t, newShelf(3), func(w *world) {
		f, _, leave, ok := w.desk.enter("")
		require.True(t, ok)
		s := watch(t, w.ctx, f, look{})
		w.pass(3 * time.Second)
		got := s.take()
		require.Equal(t, 2, got[0].Sites.Total)
		require.Equal(t, map[string]int{"queued": 3}, got[0].Sites.List[1].Counts)
		s.ask(look{Text: "SHO"})
		w.pass(time.Second)
		got = s.take()
		require.Equal(t, 1, got[0].Sites.Total)
		s.ask(look{Hidden: true})
		w.pass(time.Second)
		s.take()
		w.pass(5 * time.Second)
		require.Empty(t, s.take())
		leave()
		asked := w.src.sites
		w.pass(10 * time.Second)
		require.Equal(t, asked, w.src.sites, "nobody looks, nobody asks")
	})
}

func TestTheDeskIsBounded(t *testing.T) {
	inWorld(t, newShelf(0), func(w *world) {
		var leaves []func()
		enter := func(site string) bool {
			_, _, leave, ok := w.desk.enter(site)
			if ok {
				leaves = append(leaves, leave)
			}
			return ok
		}
		require.True(t, enter(""))
		for i := range maxBoards {
			require.True(t, enter(fmt.Sprint("s", i)))
		}
		require.False(t, enter("one more"))
		require.True(t, enter("s1"), "those that are open may be shared")
		for enter("s1") {
		}
		require.Equal(t, maxViewers, w.desk.viewers)
		require.False(t, enter(""))
		for _, leave := range leaves {
			leave()
		}
		require.Empty(t, w.desk.open)
		require.True(t, enter("one more"))
		leaves[len(leaves)-1]()
	})
}

// loaded answers how many rows a board has.
func (b *board) loaded() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows)
}
