package session

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentBytes is how much the kernel may hold that it hasn't sent, so that control frames overtake bulk.
const unsentBytes = 128 << 10

// tcpTuner sets what Go's TCP connections have no methods for; writes are watched in chunks. A nil one does nothing.
type tcpTuner struct{ raw syscall.RawConn }

func newTCPTuner(c net.Conn) *tcpTuner {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return nil
	}
	return &tcpTuner{raw: raw}
}

func (t *tcpTuner) keepUnsentShort() {
	if t == nil {
		return
	}
	_ = t.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
	})
}

func (*tcpTuner) tells() bool           { return false }
func (*tcpTuner) acked() (uint64, bool) { return 0, false }

func (t *tcpTuner) makeRoom() {
	if t == nil {
		return
	}
	_ = t.raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 1<<30)
	})
}
