package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
)

// Layout of bbolt's pages: a header of id, flags, count and overflow; elements; keys and values. Numbers are in the order of
// the machine that wrote them.
const (
	headerBytes  = 16
	elementBytes = 16
	metaBytes    = 64
	sumAt        = 56

	branchFlag = 0x01
	leafFlag   = 0x02
	metaFlag   = 0x04
	bucketFlag = 0x01 // of a leaf's element

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	maxDepth    = 64
	maxKey      = 32768
)

// verified is what a file was found to be.
type verified struct {
	used int64 // bytes of pages that hold something
}

// walker judges a file from the outside, without mapping it: every page that can be reached is there, once, and is what it
// should be. bbolt would panic, or the process would get a SIGBUS.
type walker struct {
	f    *os.File
	page int64
	high uint64   // pages at and beyond hold nothing
	free uint64   // page of the list of free ones; noFreelist when there is none
	seen []uint64 // a bit a page
	used int64
}

// verify judges a file. A *ForeignError says what is wrong with it; the file isn't changed.
func verify(path string) (v verified, err error) {
	f, err := os.Open(path)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return v, err
	}
	foreign := func(format string, args ...any) error {
		return &ForeignError{Path: path, Reason: fmt.Sprintf(format, args...)}
	}
	if !info.Mode().IsRegular() {
		return v, foreign("it isn't a regular file")
	}
	root, w, err := newWalker(f, info.Size())
	if err != nil {
		return v, foreign("%v", err)
	}
	if need := int64(w.high) * w.page; need > info.Size() {
		return v, foreign("it was cut short: %d bytes are there of at least %d", info.Size(), need)
	}
	if err := w.tree(root, nil, nil, 0); err != nil {
		return v, foreign("it is damaged: %v", err)
	}
	v.used = w.used + 2*w.page
	if err := w.freelist(); err != nil {
		return v, foreign("it is damaged: %v", err)
	}
	return v, nil
}

var errNotBolt = errors.New("it isn't a database of this store")

// newWalker finds the meta page that bbolt would go by.
func newWalker(f *os.File, size int64) (root uint64, w *walker, err error) {
	var newest uint64
	for n := range int64(2) {
		b := make([]byte, headerBytes+metaBytes)
		if _, err := f.ReadAt(b, n*pageSize); err != nil {
			continue
		}
		m := b[headerBytes:]
		h := fnv.New64a()
		_, _ = h.Write(m[:sumAt])
		order := binary.NativeEndian
		if order.Uint32(m) != boltMagic || order.Uint32(m[4:]) != boltVersion || order.Uint64(m[sumAt:]) != h.Sum64() {
			continue
		}
		if order.Uint32(m[8:]) != pageSize || order.Uint16(b[8:]) != metaFlag {
			return 0, nil, errNotBolt
		}
		if tx := order.Uint64(m[48:]); w == nil || tx > newest {
			newest, root = tx, order.Uint64(m[16:])
			w = &walker{f: f, page: pageSize, free: order.Uint64(m[32:]), high: order.Uint64(m[40:])}
		}
	}
	if w == nil {
		if size < 4*pageSize {
			return 0, nil, fmt.Errorf("%w, or it was cut short: it has %d bytes", errNotBolt, size)
		}
		return 0, nil, errNotBolt
	}
	if w.high > 1<<40 {
		return 0, nil, errNotBolt
	}
	w.seen = make([]uint64, min(w.high, uint64(size/w.page))/64+1)
	return root, w, nil
}

// span is a page with those that it overflows into. Only what is asked for is read: values are large.
type span struct {
	w     *walker
	id    uint64
	first []byte
	bytes int64
}

// at answers n bytes at a place in the span.
func (r *span) at(off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || off+n > r.bytes {
		return nil, fmt.Errorf("page %d: it ends before what it names", r.id)
	}
	if off+n <= int64(len(r.first)) {
		return r.first[off : off+n], nil
	}
	b := make([]byte, n)
	_, err := r.w.f.ReadAt(b, int64(r.id)*r.w.page+off)
	return b, err
}

// load reads a page that nobody reached yet.
func (w *walker) load(id uint64) (*span, error) {
	if id < 2 || id >= w.high {
		return nil, fmt.Errorf("page %d isn't one", id)
	}
	r := &span{w: w, id: id, first: make([]byte, w.page)}
	if _, err := w.f.ReadAt(r.first, int64(id)*w.page); err != nil {
		return nil, err
	}
	order := binary.NativeEndian
	over := uint64(order.Uint32(r.first[12:]))
	if order.Uint64(r.first) != id || over >= w.high-id {
		return nil, fmt.Errorf("page %d isn't itself", id)
	}
	for p := id; p <= id+over; p++ {
		if w.seen[p/64]&(1<<(p%64)) != 0 {
			return nil, fmt.Errorf("page %d is used twice", p)
		}
		w.seen[p/64] |= 1 << (p % 64)
	}
	r.bytes = int64(over+1) * w.page
	w.used += r.bytes
	return r, nil
}

// tree judges a page and all below. Its keys lie from low, up to but without high; nil is open.
func (w *walker) tree(id uint64, low, high []byte, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("page %d lies too deep", id)
	}
	r, err := w.load(id)
	if err != nil {
		return err
	}
	return w.elements(r, low, high, depth)
}

func (w *walker) elements(r *span, low, high []byte, depth int) error {
	order := binary.NativeEndian
	flags, count := order.Uint16(r.first[8:]), int64(order.Uint16(r.first[10:]))
	if flags != branchFlag && flags != leafFlag || flags == branchFlag && count == 0 {
		return fmt.Errorf("page %d is no page of a tree", r.id)
	}
	next := headerBytes + count*elementBytes // where what an entry names begins: bbolt leaves no gaps
	var last []byte
	type child struct {
		id  uint64
		key []byte
	}
	var children []child
	for i := range count {
		from := headerBytes + i*elementBytes
		e, err := r.at(from, elementBytes)
		if err != nil {
			return err
		}
		var pos, keyBytes, valueBytes int64
		if flags == branchFlag {
			pos, keyBytes = int64(order.Uint32(e)), int64(order.Uint32(e[4:]))
		} else {
			pos, keyBytes, valueBytes = int64(order.Uint32(e[4:])), int64(order.Uint32(e[8:])), int64(order.Uint32(e[12:]))
		}
		if keyBytes == 0 || keyBytes > maxKey || from+pos != next || next+keyBytes+valueBytes > r.bytes {
			return fmt.Errorf("page %d: entry %d doesn't fit", r.id, i)
		}
		next += keyBytes + valueBytes
		key, err := r.at(from+pos, keyBytes)
		if err != nil {
			return err
		}
		if last != nil && string(key) <= string(last) || i == 0 && low != nil && string(key) < string(low) ||
			high != nil && string(key) >= string(high) {
			return fmt.Errorf("page %d: entry %d isn't in order", r.id, i)
		}
		last = key
		switch {
		case flags == branchFlag:
			children = append(children, child{order.Uint64(e[8:]), key})
		case order.Uint32(e) == bucketFlag:
			v, err := r.at(from+pos+keyBytes, valueBytes)
			if err != nil {
				return err
			}
			if err := w.bucket(r.id, v, depth); err != nil {
				return err
			}
		case order.Uint32(e) != 0:
			return fmt.Errorf("page %d: entry %d is of no kind", r.id, i)
		}
	}
	for i, c := range children {
		end := high
		if i+1 < len(children) {
			end = children[i+1].key
		}
		if err := w.tree(c.id, c.key, end, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// bucket judges a bucket: the number of its root, or its one page within the value.
func (w *walker) bucket(id uint64, v []byte, depth int) error {
	if len(v) < headerBytes {
		return fmt.Errorf("page %d: a bucket doesn't fit", id)
	}
	if root := binary.NativeEndian.Uint64(v); root != 0 {
		return w.tree(root, nil, nil, depth+1)
	}
	inline := v[headerBytes:]
	if len(inline) < headerBytes || binary.NativeEndian.Uint64(inline) != 0 || binary.NativeEndian.Uint16(inline[8:]) != leafFlag {
		return fmt.Errorf("page %d: a bucket is damaged", id)
	}
	return w.elements(&span{w: w, id: id, first: inline, bytes: int64(len(inline))}, nil, nil, depth+1)
}
