package crash

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"pushrelay/cmd/pushrelay/internal/app"
	"pushrelay/cmd/pushrelay/internal/setup"
	"pushrelay/store"
	"pushrelay/store/disk"
	"pushrelay/wire"
)

// databaseName is the file in a relay's folder, as docs/storage.md has it.
const databaseName = "pushrelay.db"

// pageBytes is a page of the file; the first two say which state counts.
const pageBytes = 8 << 10

// damages are files that no relay may begin with; used is how many bytes of the whole one hold something.
func damages(used int) []damage {
	cut := func(by func(n int) int) func([]byte) []byte {
		return func(b []byte) []byte { return b[:by(len(b))] }
	}
	return []damage{
		{"garbage", app.ExitDamaged, func([]byte) []byte {
			b := make([]byte, 64<<10)
			_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // it never fails
			return b
		}},
		{"a text", app.ExitDamaged, func([]byte) []byte { return []byte("jobs: none\n") }},
		{"nothing", app.ExitDamaged, func([]byte) []byte { return nil }},
		{"cut in the middle", app.ExitDamaged, cut(func(n int) int { return n / 2 })},
		{"cut off at its last pages", app.ExitDamaged, cut(func(int) int { return used - 2*pageBytes })},
		{"cut after one page", app.ExitDamaged, cut(func(int) int { return pageBytes })},
		{"cut within a page", app.ExitDamaged, cut(func(int) int { return pageBytes + 17 })},
		{"without its beginning", app.ExitDamaged, func(b []byte) []byte { return b[2*pageBytes:] }},
		{"with its beginning overwritten", app.ExitDamaged, func(b []byte) []byte {
			return append(make([]byte, 2*pageBytes), b[2*pageBytes:]...)
		}},
		{"overwritten from its middle on", app.ExitDamaged, func(b []byte) []byte {
			return append(bytes.Clone(b[:len(b)/2]), bytes.Repeat([]byte{0xa5}, len(b)-len(b)/2)...)
		}},
	}
}

type damage struct {
	name string
	code int
	to   func(whole []byte) []byte
}

// databases are whole ones of other programs and builds.
func databases() []struct {
	name   string
	code   int
	change func(tx *bbolt.Tx) error
} {
	return []struct {
		name   string
		code   int
		change func(tx *bbolt.Tx) error
	}{
		{"another program's database", app.ExitDamaged, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("pushrelay")) }},
		{"half of a store", app.ExitDamaged, func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("jobs")) }},
		{"a later format", app.ExitFormat, func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte("pushrelay")).Put([]byte("format"), binary.AppendUvarint(nil, 4711))
		}},
	}
}

// refusedBy starts the program in each way that opens a folder, and wants the file named, the code right and the bytes
// untouched.
func refusedBy(t *testing.T, dir string, code int, words ...string) {
	t.Helper()
	path := filepath.Join(dir, databaseName)
	before := digest(t, path)
	keys := t.TempDir()
	_, err := setup.Make(keys)
	require.NoError(t, err)
	for _, args := range [][]string{
		{"serve", "--projection", setup.ProjectionFile(keys), "--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "off"},
		{"store", "inspect", dir},
		{"store", "compact", dir},
		{"store", "restored", dir},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, os.Getenv(programVar), args...)
		out, _ := cmd.CombinedOutput() // the code says it
		cancel()
		assert.Equal(t, code, cmd.ProcessState.ExitCode(), "%v\n%s", args, out)
		for _, word := range append(words, path) {
			assert.Contains(t, string(out), word, "%v", args)
		}
		assert.Less(t, bytes.Count(out, []byte("\n")), 3, "%v says more than what is wrong:\n%s", args, out)
	}
	require.Equal(t, before, digest(t, path), "the file was changed")
}

func digest(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return fmt.Sprintf("%x", sha256.Sum256(raw))
}

// aStore makes a folder with jobs of all sorts in it, without room to spare.
func aStore(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	s, err := disk.Open(t.Context(), disk.Options{Dir: dir})
	require.NoError(t, err)
	stubs := make([]wire.Stub, 200)
	for i := range stubs {
		stubs[i] = wire.Stub{
			ID: fmt.Sprint("job-", i), Kind: "k", Owner: "owner", Site: "key", Audience: "self", SizeClass: "small",
			DeadlineAt: time.Now().Add(time.Hour).UnixMilli(),
		}
		stubs[i].Raw = wire.AppendStub(nil, stubs[i])
	}
	_, err = s.Enqueue(t.Context(), "site", wire.Dialect0, stubs)
	require.NoError(t, err)
	granted, err := s.Claim(t.Context(), store.Claim{
		Runner: "runner", Owner: "owner", Device: "device", Dialect: wire.Dialect0, Routes: []store.Route{{Site: "site", Owner: "owner"}},
		Kinds: []string{"k"}, Max: 4, Slots: 4, LeaseFor: time.Minute,
	})
	require.NoError(t, err)
	require.Len(t, granted, 4)
	for _, g := range granted {
		env := wire.Envelope{RecipientKeyID: "device", Raw: bytes.Repeat([]byte("x"), 50_000)}
		_, err := s.Seal(t.Context(), "site", wire.Grant{JobID: g.Stub.ID, LeaseID: g.Lease}, env)
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
	_, err = disk.Compact(t.Context(), dir)
	require.NoError(t, err)
	return dir
}

func TestDamagedFilesAreRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	from := aStore(t)
	whole, err := os.ReadFile(filepath.Join(from, databaseName))
	require.NoError(t, err)
	report, err := disk.Inspect(t.Context(), from)
	require.NoError(t, err)
	for _, d := range damages(int(report.Bytes - report.Free)) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, databaseName), d.to(whole), 0o600))
			refusedBy(t, dir, d.code, "left as it is")
		})
	}
}

func TestForeignDatabasesAreRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	for _, d := range databases() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			dir := aStore(t)
			db, err := bbolt.Open(filepath.Join(dir, databaseName), 0o600, nil)
			require.NoError(t, err)
			require.NoError(t, db.Update(d.change))
			require.NoError(t, db.Close())
			word := "left as it is"
			if d.code == app.ExitFormat {
				word = "format 4711"
			}
			refusedBy(t, dir, d.code, word)
		})
	}
}

// What the system doesn't let this user have is a wrong setting, and the message says of what.
func TestFoldersThatCannotBeHad(t *testing.T) {
	t.Parallel()
	keys := t.TempDir()
	_, err := setup.Make(keys)
	require.NoError(t, err)
	forbidden := map[string]string{"linux": "/sys/pushrelay-data", "darwin": "/System/pushrelay-data"}[runtime.GOOS]
	require.NotEmpty(t, forbidden, "name a folder that nobody may make on this system")
	out, _ := exec.Command(os.Getenv(programVar), "serve", "--projection", setup.ProjectionFile(keys), "--data", forbidden,
		"--listen", "127.0.0.1:0", "--admin-listen", "off").CombinedOutput()
	require.Contains(t, string(out), forbidden)
	require.Contains(t, string(out), "this user must be able to write in it")
}
