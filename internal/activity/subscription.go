package activity

import "slices"

// A Subscription receives calls when their backend becomes known, and when they end.
type Subscription struct {
	C    <-chan CallRecord
	c    chan CallRecord
	r    *Recorder
	lost int // guarded by Recorder.mu
}

// Subscribe returns a Subscription with a buffer for this number of calls. Calls for which the
// buffer has no room are lost. The caller must call Close.
func (r *Recorder) Subscribe(buffer int) *Subscription {
	c := make(chan CallRecord, buffer)
	s := &Subscription{C: c, c: c, r: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readers = append(r.readers, s)
	return s
}

// Close ends the Subscription. C is not closed.
func (s *Subscription) Close() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.readers = slices.DeleteFunc(s.r.readers, func(o *Subscription) bool { return o == s })
}

// TakeLost returns the number of calls that were lost since the last TakeLost.
func (s *Subscription) TakeLost() int {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	n := s.lost
	s.lost = 0
	return n
}

// publish sends the call to all subscriptions. Recorder.mu is held.
func (r *Recorder) publish(call *storedCall) {
	if len(r.readers) == 0 {
		return
	}
	c := call.copy()
	for _, s := range r.readers {
		select {
		case s.c <- c:
		default:
			s.lost++
		}
	}
}
