package disk

import (
	"encoding/binary"
	"fmt"
)

const (
	freelistFlag = 0x10
	noFreelist   = ^uint64(0)
	manyFree     = 0xffff // the count is the first entry, as it is too large for the header
)

// freelist judges the list of free pages. This store writes none, but a file that was just made, or that another program
// wrote to, has one.
func (w *walker) freelist() error {
	if w.free == noFreelist {
		return nil
	}
	r, err := w.load(w.free)
	if err != nil {
		return err
	}
	order := binary.NativeEndian
	if order.Uint16(r.first[8:]) != freelistFlag {
		return fmt.Errorf("page %d is no list of free pages", r.id)
	}
	n, from := uint64(order.Uint16(r.first[10:])), int64(headerBytes)
	if n == manyFree {
		n, from = order.Uint64(r.first[headerBytes:]), from+8
	}
	if n > uint64(r.bytes)/8 {
		return fmt.Errorf("page %d lists more than it holds", r.id)
	}
	ids, err := r.at(from, int64(n)*8)
	if err != nil {
		return err
	}
	last := uint64(1)
	for ; len(ids) > 0; ids = ids[8:] {
		id := order.Uint64(ids)
		if id <= last || id >= w.high || w.seen[id/64]&(1<<(id%64)) != 0 {
			return fmt.Errorf("page %d lists page %d, which isn't free", r.id, id)
		}
		last = id
	}
	return nil
}
