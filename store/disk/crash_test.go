package disk_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/wire"
)

// victimDir names the folder that a child process is to write to until it is killed.
const victimDir = "PUSHRELAY_TEST_VICTIM"

// Steps of a job's life, as the child tells of them once they were answered.
const (
	stepEnqueued = iota + 1
	stepClaimed
	stepSealed
	stepTaken
	stepDone
	stepCollected
)

func textOf(what, id string) []byte {
	return []byte(strings.Repeat(what+" of "+id+" ", 1+len(id)*len(id)*20))
}

// victim lives lives and tells of each step that was answered, until somebody kills it.
func victim(dir string) {
	st, err := disk.Open(context.Background(), disk.Options{Dir: dir, Settings: benchSettings()})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	say := func(id string, step int, lease string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Println(id, step, lease) // one write: a line is told whole or not at all
	}
	say("open", 0, "")
	run := strconv.FormatInt(time.Now().UnixNano(), 36)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				if err := tellLife(st, fmt.Sprint("r", w), fmt.Sprint(run, "-", w, "-", i), i%3, say); err != nil {
					fmt.Println("failed", err)
					os.Exit(1)
				}
			}
		})
	}
	wg.Wait()
}

// tellLife lives one life; how far depends on the kind.
func tellLife(st *disk.Store, runner, id string, kind int, say func(string, int, string)) error {
	ctx := context.Background()
	stub := benchStub(id, time.Now().Add(time.Hour))
	stub.Owner = runner // so that each worker claims its own
	if got, err := st.Enqueue(ctx, "busy", wire.Dialect0, []wire.Stub{stub}); err != nil || got[0].Err != nil {
		return fmt.Errorf("enqueue: %v, %w", got, err)
	}
	say(id, stepEnqueued, "")
	c := benchClaim(runner, 1)
	c.Routes = []store.Route{{Site: "busy", Owner: runner}}
	claimed, err := st.Claim(ctx, c)
	if err != nil || len(claimed) != 1 {
		return fmt.Errorf("claim: %v, %w", claimed, err)
	}
	g := wire.Grant{JobID: claimed[0].Stub.ID, LeaseID: claimed[0].Lease}
	id = g.JobID // it may be an older one
	if _, err := st.Accept(ctx, runner, []wire.Grant{g}); err != nil {
		return err
	}
	say(id, stepClaimed, g.LeaseID)
	if _, err := st.Seal(ctx, "busy", g, wire.Envelope{RecipientKeyID: c.Device, Raw: textOf("payload", id)}); err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	say(id, stepSealed, g.LeaseID)
	if env, err := st.TakePayload(ctx, runner, g); err != nil || string(env.Raw) != string(textOf("payload", id)) {
		return fmt.Errorf("take: %d bytes, %w", len(env.Raw), err)
	}
	say(id, stepTaken, g.LeaseID)
	if kind == 0 {
		return nil
	}
	done, err := st.Complete(ctx, runner, g, wire.Envelope{Raw: textOf("result", id)}, wire.DispositionOK)
	if err != nil || !done.Accepted {
		return fmt.Errorf("complete: %v, %w", done, err)
	}
	say(id, stepDone, g.LeaseID)
	if kind == 1 {
		return nil
	}
	if err := st.Collect(ctx, "busy", []wire.Grant{g}); err != nil {
		return err
	}
	say(id, stepCollected, g.LeaseID)
	return nil
}

// told is the last step of a job that was answered, and under which lease.
type told struct {
	step  int
	lease string
}

// A process that is killed at any moment has lost nothing that it had answered: the file opens, again and again.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	const kills = 30
	dir := t.TempDir()
	acked := map[string]told{}
	r := rand.New(rand.NewPCG(3, uint64(time.Now().UnixNano())))
	lines := 0
	for range kills {
		lines += kill(t, dir, time.Duration(1+r.IntN(120))*time.Millisecond, acked)
		st := begin(t, disk.Options{Dir: dir, Settings: benchSettings()})
		for id, at := range acked {
			stands(t, st, id, at)
		}
		require.NoError(t, st.Close())
	}
	t.Logf("%d answers, %d jobs, %d kills", lines, len(acked), kills)
	require.Greater(t, len(acked), kills)
}

// kill lets a child write for a while from its first answer on, kills it and notes what it had told.
func kill(t *testing.T, dir string, after time.Duration, acked map[string]told) (lines int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), victimDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	in := bufio.NewScanner(out)
	var timer *time.Timer
	for in.Scan() {
		if timer == nil {
			timer = time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
		f := strings.SplitN(in.Text(), " ", 3)
		require.NotEqual(t, "failed", f[0], in.Text())
		step, err := strconv.Atoi(f[1])
		require.NoError(t, err)
		if step > 0 {
			acked[f[0]] = told{step, f[2]}
			lines++
		}
	}
	require.NotNil(t, timer, "the child never opened its store")
	timer.Stop()
	require.Error(t, cmd.Wait(), "the child ended by itself")
	return lines
}

// stands verifies that a job is at least as far as was answered.
func stands(t *testing.T, st *disk.Store, id string, at told) {
	t.Helper()
	j, err := st.Job(t.Context(), "busy", id)
	require.NoError(t, err, id)
	if at.step > stepEnqueued {
		require.Equal(t, at.lease, j.Lease, "%s, %v", id, at)
	}
	least := map[int]store.State{
		stepEnqueued: store.Queued, stepClaimed: store.AwaitingPayload, stepSealed: store.Ready, stepTaken: store.Running,
		stepDone: store.Done, stepCollected: store.Done,
	}[at.step]
	require.GreaterOrEqual(t, j.State, least, "%s, %v", id, at)
	g := wire.Grant{JobID: id, LeaseID: j.Lease}
	switch {
	case at.step == stepCollected:
		require.True(t, j.Collected, id)
	case j.State == store.Done && !j.Collected:
		env, err := st.ResultEnvelope(t.Context(), "busy", g)
		require.NoError(t, err)
		require.Equal(t, string(textOf("result", id)), string(env.Raw))
	case j.State == store.Ready || j.State == store.Running && j.Takes < store.MaxTakes-2:
		env, err := st.TakePayload(t.Context(), j.Runner, g)
		require.NoError(t, err)
		require.Equal(t, string(textOf("payload", id)), string(env.Raw))
	}
}

// A file is whole under its name or not there: a process that is killed while it makes one is no obstacle for the next.
func TestKilledWhileTheFileIsMade(t *testing.T) {
	for i := range 12 {
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), victimDir+"="+dir)
		require.NoError(t, cmd.Start())
		timer := time.AfterFunc(time.Duration(5+2*i)*time.Millisecond, func() { _ = cmd.Process.Kill() })
		require.Error(t, cmd.Wait())
		timer.Stop()
		require.NoError(t, begin(t, disk.Options{Dir: dir}).Close())
	}
}
