package disk

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"reflect"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"pushrelay/store/memory"
)

// sector is what a disk writes whole or not at all.
const sector = 512

// patch is a write that wasn't synced yet.
type patch struct {
	off int64
	b   []byte
}

// mishap is what becomes of one write.
type mishap int

const (
	noMishap   mishap = iota
	noRoom            // nothing is written
	shortWrite        // a part is written
	noSync            // all is written, and the sync after it fails: the system forgets that it had to write it
	mishaps
)

func (m mishap) String() string { return [...]string{"none", "no room", "short write", "no sync"}[m] }

// platter stands between a store's database and its file. It knows what a disk would have after a power cut: the database
// syncs after its pages and after the page that makes them count, which is one of the first two.
type platter struct {
	t     *testing.T
	s     *Store
	f     *os.File // the store's file
	db    *bbolt.DB
	saved int // the database's own descriptor while a broken one is in its place; -1 otherwise

	disk    []byte  // what is certainly there
	pending []patch // what may be
	head    bool    // the last write was of the page that counts
	writes  int     // of the commit that is made
	at      int     // the write that meets the mishap, from 1
	mishap  mishap
	tight   bool // there is no room for what settles

	keep   bool     // images are made
	images [][]byte // what may have been on the disk, at each write
	rng    *rand.Rand
}

// newPlatter gets between a store and its file.
func newPlatter(t *testing.T, s *Store, seed uint64) *platter {
	t.Helper()
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	require.NoError(t, err)
	p := &platter{t: t, s: s, f: f, saved: -1, rng: rand.New(rand.NewPCG(seed, 5))}
	p.disk, err = os.ReadFile(s.path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, errors.Join(s.Close(), f.Close())) })
	p.do(func() {
		s.fault = p.step
		p.hook()
	})
	return p
}

// do runs something on the committer's goroutine.
func (p *platter) do(f func()) {
	p.t.Helper()
	_, err := read(context.Background(), p.s, func(*memory.Machine) none { f(); return none{} })
	require.NoError(p.t, err)
}

// hook takes the place of the database's writes.
func (p *platter) hook() {
	p.db = p.s.db
	at := reflect.ValueOf(p.db).Elem().FieldByName("ops").FieldByName("writeAt")
	*(*func([]byte, int64) (int, error))(unsafe.Pointer(at.UnsafeAddr())) = p.writeAt
}

// untouched is a file's time of change that no write leaves.
func untouched() time.Time { return time.Unix(1_000_000_000, 0) }

func (p *platter) step(at step) error {
	if at == fileOpened { // whoever opens a file that is uncertain lets what it goes by last
		info, err := p.f.Stat()
		require.NoError(p.t, err)
		if !info.ModTime().Equal(untouched()) {
			p.pending = nil
			_, err = p.f.ReadAt(p.disk[:2*pageSize], 0)
			require.NoError(p.t, err)
		}
		p.hook()
	}
	return nil
}

func (p *platter) writeAt(b []byte, off int64) (int, error) {
	if head := off < 2*pageSize; head || p.head { // what came before was synced, or it wouldn't go on
		p.sync()
		p.head = head
	}
	p.writes++
	if p.tight && p.s.page.settled > 0 {
		return 0, syscall.ENOSPC
	}
	if p.at > 0 && (p.writes == p.at || p.writes > p.at && p.mishap != noSync) { // a disk that is full stays so
		switch p.mishap {
		case noRoom:
			return 0, syscall.ENOSPC
		case shortWrite:
			n := len(b) / 2 / sector * sector
			if off < 2*pageSize {
				n = 24 // torn within the part that counts
			}
			p.write(b[:n], off)
			return n, syscall.ENOSPC
		case noSync:
			p.breakSync()
		}
	}
	p.write(b, off)
	return len(b), nil
}

func (p *platter) write(b []byte, off int64) {
	_, err := p.f.WriteAt(b, off)
	require.NoError(p.t, err)
	p.pending = append(p.pending, patch{off, append([]byte(nil), b...)})
	if p.keep {
		p.images = append(p.images, p.image())
	}
}

// sync lets all that was written last.
func (p *platter) sync() {
	for _, w := range p.pending {
		p.disk = w.onto(p.disk)
	}
	p.pending = nil
}

func (w *patch) onto(disk []byte) []byte {
	if end := int(w.off) + len(w.b); end > len(disk) {
		disk = append(disk, make([]byte, end-len(disk))...)
	}
	copy(disk[w.off:], w.b)
	return disk
}

// image is a disk after a power cut: of what wasn't synced some sectors are there.
func (p *platter) image() []byte {
	info, err := p.f.Stat()
	require.NoError(p.t, err)
	disk := append(make([]byte, 0, info.Size()), p.disk...)
	disk = append(disk, make([]byte, max(0, int(info.Size())-len(disk)))...)
	some := p.rng.IntN(4) // from hardly any to all of them
	for _, w := range p.pending {
		for n := 0; n < len(w.b); n += sector {
			if p.rng.IntN(4) < some+p.rng.IntN(2) {
				part := patch{w.off + int64(n), w.b[n:min(n+sector, len(w.b))]}
				disk = part.onto(disk)
			}
		}
	}
	return disk
}

// breakSync lets the database's next sync fail: what it syncs isn't a file any more.
func (p *platter) breakSync() {
	var pipe [2]int
	require.NoError(p.t, syscall.Pipe(pipe[:]))
	fd := p.fd()
	saved, err := syscall.Dup(fd)
	require.NoError(p.t, err)
	p.saved = saved
	require.NoError(p.t, syscall.Dup3(pipe[0], fd, syscall.O_CLOEXEC))
	require.NoError(p.t, syscall.Close(pipe[0]))
	require.NoError(p.t, syscall.Close(pipe[1]))
}

func (p *platter) fd() int {
	at := reflect.ValueOf(p.db).Elem().FieldByName("file")
	return int((*(**os.File)(unsafe.Pointer(at.UnsafeAddr()))).Fd())
}

// arm lets a write of the next commit meet a mishap; 0 lets all go well. Whatever is uncertain is tried at once.
func (p *platter) arm(at int, m mishap) {
	p.do(func() {
		if p.saved >= 0 {
			require.NoError(p.t, syscall.Dup3(p.saved, p.fd(), syscall.O_CLOEXEC))
			require.NoError(p.t, syscall.Close(p.saved))
			p.saved = -1
			p.pending, p.head = nil, false // the system gave up on it
		}
		require.NoError(p.t, os.Chtimes(p.s.path, untouched(), untouched()))
		p.writes, p.at, p.mishap = 0, at, m
		p.s.out.next, p.s.settler.next = time.Time{}, time.Time{}
	})
}

// done notes that a commit was told as done.
func (p *platter) done() { p.do(p.sync) }
