package session

import (
	"bytes"
	"io"
	"sync"
	"testing"
	"testing/iotest"
)

// script answers reads with these pieces, cut to what is asked for, then with an error.
type script struct {
	pieces [][]byte
	reads  int
}

func (s *script) Read(p []byte) (int, error) {
	s.reads++
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	if s.pieces[0] = s.pieces[0][n:]; len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

func (s *script) Write(p []byte) (int, error) { return len(p), nil }
func (s *script) Close() error                { return nil }

func TestReadAheadKeepsOrderAndGivesBack(t *testing.T) {
	sent := make([]byte, 100_000)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	for _, size := range []int{1, 3, 512, 5000, readAheadMost, 40_000} {
		from := &script{pieces: [][]byte{bytes.Clone(sent[:512]), bytes.Clone(sent[512:30_000]), bytes.Clone(sent[30_000:])}}
		out := 0
		pool := &sync.Pool{New: func() any { out++; b := make([]byte, 20_000); return &b }}
		s := newSocket(from, nil)
		s.pool, s.early = pool, []byte("early")
		got, err := io.ReadAll(struct{ io.Reader }{atMost{s, size}})
		if err != nil || !bytes.Equal(got, append([]byte("early"), sent...)) {
			t.Errorf("reads of %d: %d bytes, %v", size, len(got), err)
		}
		if s.borrowed != nil || s.ahead != nil {
			t.Errorf("reads of %d: a buffer is kept", size)
		}
		if n := s.in.Load(); n != int64(len(sent)+len("early")) {
			t.Errorf("reads of %d: %d bytes were counted", size, n)
		}
	}
}

// atMost reads at most so many bytes at once.
type atMost struct {
	r    io.Reader
	most int
}

func (a atMost) Read(p []byte) (int, error) { return a.r.Read(p[:min(len(p), a.most)]) }

func TestReadAheadTakesFewSystemCalls(t *testing.T) {
	from := &script{pieces: [][]byte{make([]byte, 12_000)}}
	s := newSocket(from, nil)
	s.pool = &sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
	if _, err := io.ReadFull(atMost{s, 512}, make([]byte, 12_000)); err != nil {
		t.Fatal(err)
	}
	if from.reads != 2 {
		t.Errorf("%d reads, want 2", from.reads)
	}
}

func TestReadAheadTellsOfAnErrorBehindItsBytes(t *testing.T) {
	from := &script{pieces: [][]byte{[]byte("ab"), []byte("cdef")}}
	s := newSocket(struct {
		io.Reader
		io.Writer
		io.Closer
	}{iotest.DataErrReader(from), from, from}, nil)
	s.pool = &sync.Pool{New: func() any { b := make([]byte, 64); return &b }}
	got, err := io.ReadAll(atMost{s, 2})
	if err != nil || string(got) != "abcdef" || !s.readFail.Load() {
		t.Fatalf("%q, %v, fail %v", got, err, s.readFail.Load())
	}
}
