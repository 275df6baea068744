//go:build !linux && !darwin

package session

import "net"

// tcpTuner is Linux's; elsewhere there is none, and writes are watched in chunks.
type tcpTuner struct{}

func newTCPTuner(net.Conn) *tcpTuner { return nil }

func (*tcpTuner) tells() bool           { return false }
func (*tcpTuner) keepUnsentShort()      {}
func (*tcpTuner) acked() (uint64, bool) { return 0, false }
func (*tcpTuner) makeRoom()             {}
