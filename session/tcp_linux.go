package session

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// unsentBytes is how much the kernel may hold that it hasn't sent, so that control frames overtake bulk.
	unsentBytes = 128 << 10
	roomBytes   = 256 << 10
)

// tcpTuner sets and asks what Go's TCP connections have no methods for. A nil one does nothing.
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

// tells reports whether acked knows.
func (t *tcpTuner) tells() bool { return t != nil }

// acked answers how many bytes the peer's system has acknowledged.
func (t *tcpTuner) acked() (n uint64, ok bool) {
	if t == nil {
		return 0, false
	}
	_ = t.raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			n, ok = info.Bytes_acked, true
		}
	})
	return n, ok
}

// makeRoom also wakes a write that waits. The buffer is only ever grown: setting it ends the kernel's own tuning.
func (t *tcpTuner) makeRoom() {
	if t == nil {
		return
	}
	_ = t.raw.Control(func(fd uintptr) {
		have, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		if err == nil && have < 2*roomBytes { // the kernel doubles what is set, and tells the double
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, roomBytes)
		}
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, 1<<30)
	})
}
