package session

import "context"

// Held is bytes of a budget that somebody has while it works with what they stand for. Not for concurrent use; a nil one holds
// nothing.
type Held struct {
	budget *Budget
	bytes  int64
}

// Hold waits for n bytes, at most the budget's size. It answers ctx's error, and nothing is held, when that ends first.
func (b *Budget) Hold(ctx context.Context, n int64) (*Held, error) {
	n = min(n, b.size)
	if b.TryReserve(n) {
		return &Held{b, n}, nil
	}
	granted := make(chan struct{})
	cancel := b.Reserve(n, func() { close(granted) })
	select {
	case <-granted:
	case <-ctx.Done():
		if cancel() {
			return nil, ctx.Err()
		}
	}
	return &Held{b, n}, nil
}

// Keep gives back all but n bytes; it never takes more. Keep(0) ends it, and may be repeated.
func (h *Held) Keep(n int64) {
	if h == nil || n >= h.bytes {
		return
	}
	h.budget.Release(h.bytes - n)
	h.bytes = n
}
