package session

import "errors"

// ErrNoPlace is what Send answers while as much is unanswered as the relay allows.
var ErrNoPlace = errors.New("session: too much is unanswered")

// Send is Request for those who have much under way: it returns at once, and answered is called once with what Request
// would return, on the goroutine that reads from the connection, so it must not block. An error means that nothing was
// sent and answered will not be called.
func (c *Conn) Send(build func(dst []byte, id string) []byte, answered func(reply []byte, err error)) error {
	id := c.newID()
	frame := build(nil, id)
	p := &call{then: answered, bytes: int64(len(frame))}
	if !c.slots.TryAcquire(1) {
		return ErrNoPlace
	}
	if !c.bytes.TryAcquire(p.bytes) {
		c.slots.Release(1)
		return ErrNoPlace
	}
	if !c.register(id, p) {
		return ErrEnded
	}
	c.link.push(frame)
	return nil
}

// tell hands an answer to who waits for it.
func (p *call) tell(a answer) {
	if p.then != nil {
		p.then(a.frame, a.err)
		return
	}
	p.answer <- a
}
