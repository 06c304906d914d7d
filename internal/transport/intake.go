package transport

import (
	"fmt"
	"sync/atomic"
)

// An Intake counts the bytes of messages that are being received and are not complete. Beyond its
// bound the message that needs more room is given up: its request fails, and the conversation goes
// on. All methods may be called concurrently; a nil Intake has no bound.
type Intake struct {
	bound int64
	whole *Intake // also counts what this one counts; may be nil
	held  atomic.Int64
}

// NewIntake returns an Intake of so many bytes that is part of whole, unless that is nil.
func NewIntake(bound int64, whole *Intake) *Intake { return &Intake{bound: bound, whole: whole} }

// Held returns the bytes that are counted.
func (i *Intake) Held() int64 { return i.held.Load() }

// take counts n more bytes. It fails, and counts nothing, if that is too much.
func (i *Intake) take(n int64) error {
	if i == nil {
		return nil
	}
	if i.held.Add(n) > i.bound {
		i.held.Add(-n)
		of := "all backends"
		if i.whole != nil {
			of = "this backend"
		}
		return &unreadable{fmt.Sprintf("messages from %s that are not complete may have %d bytes together: try again later", of, i.bound)}
	}
	err := i.whole.take(n)
	if err != nil {
		i.held.Add(-n)
	}
	return err
}

func (i *Intake) give(n int64) {
	for ; i != nil; i = i.whole {
		i.held.Add(-n)
	}
}

// maxUncounted is how many bytes of each message are not counted: short ones always come through.
const maxUncounted = 16 << 10

// A receipt is the part of an Intake that one reader holds.
type receipt struct {
	of   *Intake
	held int64
}

// hold changes what the reader holds to so many bytes. It fails if there is no room for them.
func (r *receipt) hold(bytes int) error {
	n := int64(bytes)
	if n <= maxUncounted {
		n = 0
	}
	switch {
	case r.of == nil || n == r.held:
		return nil
	case n < r.held:
		r.of.give(r.held - n)
	default:
		if err := r.of.take(n - r.held); err != nil {
			return err
		}
	}
	r.held = n
	return nil
}

// release holds nothing any more.
func (r *receipt) release() { _ = r.hold(0) }
