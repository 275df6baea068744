package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"pushrelay/store"
	"pushrelay/store/memory"
)

// Options configure a store. Zero settings mean the defaults; a nil Clock is time.Now.
type Options struct {
	Dir      string // made when missing
	Settings store.Settings
	Clock    func() time.Time
	Observer Observer // nil: nobody is told
}

// Observer is told of rare events, by any goroutine. Its methods mustn't block.
type Observer interface {
	// Failed is told once for each outage: a commit failed, and until Recovered changes are refused.
	Failed(err error)
	// Recovered is told when commits succeed again, with how long they didn't.
	Recovered(after time.Duration)
	// Unreadable is told of each record, and of each envelope that was asked for, that this build can't read, with the
	// sequence number of its job; 0 for what isn't of one job. It is left where it is.
	Unreadable(seq uint64, err error)
}

// Store is a RoutingStore in a folder. Open makes one.
type Store struct {
	// Immutable after Open.
	limits   limits
	clock    func() time.Time
	set      store.Settings
	path     string
	epoch    string
	lock     *os.File
	observer Observer

	watchers memory.Watchers
	queue    queue
	answers  sync.Pool    // of chan error
	err      atomic.Value // of outcome: the last commit's
	ended    chan struct{}
	closing  sync.Once
	closeErr error // written before ended is closed

	dead atomic.Bool // the database panicked: nothing is tried again

	mu      sync.Mutex
	m       *memory.Machine // guarded by mu; nil: closed
	db      *bbolt.DB       // changed under mu by the committer alone; nil while the file can't be opened again
	writing bool            // guarded by mu: a commit is under way

	// The committer's.
	commits uint64 // of the last commit
	ceiling uint64 // no session has a number above
	down    uint64 // see state
	events  []store.Event
	fresh   []*memory.Sealed // of the commit that is made
	arena   []byte           // values of that commit
	scratch []byte
	page    page // of that commit
	tail    tail
	settler settler
	out     outage
	failure time.Time        // the last one, by the real clock
	spent   time.Duration    // by the last commit
	fault   func(step) error // of tests
}

var (
	_ store.RoutingStore = (*Store)(nil)
	_ store.Medium       = (*Store)(nil)
)

// outcome is how the last commit went.
type outcome struct{ err error }

// Open opens the store in a folder, or makes one, and blocks until it is read. Errors: *LockedError after three seconds,
// *ForeignError, *VersionError, and what the operating system says.
func Open(ctx context.Context, o Options) (*Store, error) {
	return openWith(ctx, o, limits{entries: logEntries, bytes: logBytes, records: logRecords})
}

func openWith(ctx context.Context, o Options, l limits) (*Store, error) {
	if err := makeDir(o.Dir); err != nil {
		return nil, err
	}
	held, err := lock(ctx, o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		limits: l, clock: o.Clock, set: o.Settings, path: filepath.Join(o.Dir, fileName), lock: held, observer: o.Observer,
		queue: queue{wake: make(chan struct{}, 1)}, ended: make(chan struct{}), settler: settler{most: settleEntries},
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.observer == nil {
		s.observer = nobody{}
	}
	s.answers.New = func() any { return make(chan error, 1) }
	s.err.Store(outcome{})
	if err := s.open(); err != nil {
		return nil, errors.Join(err, unlock(held))
	}
	go s.work()
	return s, nil
}

// open makes the file when there is none, and reads it.
func (s *Store) open() error {
	if err := create(s.path); err != nil {
		return err
	}
	db, err := openFile(s.path, false)
	if err != nil {
		return err
	}
	l, err := s.load(db)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	_ = remove(s.path + compactSuffix) // of one that was interrupted
	s.db, s.m, s.tail, s.epoch = db, l.m, l.tail, l.epoch
	s.commits, s.ceiling, s.down = l.state.commits, l.state.ceiling, l.state.down
	return nil
}

// Err answers why nothing can be committed just now; nil while commits succeed. It never blocks.
func (s *Store) Err() error {
	o, _ := s.err.Load().(outcome)
	return o.err
}

// Watch is Keeper's. A watcher is for one reader at a time; a slice that Wait answered is good until the next Wait.
func (s *Store) Watch(in store.Interest) store.Watcher { return s.watchers.Watch(in) }

// Now is Keeper's.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	return read(ctx, s, func(*memory.Machine) time.Time { return s.clock().UTC() })
}

// Epoch is Keeper's. It stays as long as the file does.
func (s *Store) Epoch(ctx context.Context) (string, error) {
	return read(ctx, s, func(*memory.Machine) string { return s.epoch })
}

// Close is Keeper's. The group that is being committed is finished; what waits is refused. Closing again does nothing.
func (s *Store) Close() error {
	s.closing.Do(s.queue.close)
	<-s.ended
	return s.closeErr
}

// shut ends the store from the committer's side.
func (s *Store) shut() {
	s.watchers.Close()
	s.mu.Lock()
	s.settleAll()
	s.m = nil
	s.mu.Unlock()
	if s.db != nil && !s.dead.Load() {
		s.closeErr = s.db.Close()
	}
	s.closeErr = errors.Join(s.closeErr, unlock(s.lock))
	close(s.ended)
}

// nobody is told nothing.
type nobody struct{}

func (nobody) Failed(error)             {}
func (nobody) Recovered(time.Duration)  {}
func (nobody) Unreadable(uint64, error) {}
