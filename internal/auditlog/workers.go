package auditlog

import (
	"runtime"
	"sync"
)

// workerCount bounds the goroutines that scan the blocks of a file.
const workerCount = 4

// scanWorkers scan the blocks of a file at the same time, and pass the records to a function in the
// order of the file, on the goroutine that calls scan and finish.
type scanWorkers struct {
	s       *lineScanner
	found   func(*RecordLine) error
	jobs    chan *job
	running sync.WaitGroup
	pending []*job // the oldest first; at most two for each worker
	free    []*job
}

// A job is a block that is scanned.
type job struct {
	lineScanner
	block   []byte
	records []RecordLine // selected; they refer to block
	done    chan struct{}
}

// startWorkers starts the goroutines. stop must be called.
func startWorkers(s *lineScanner, found func(*RecordLine) error) *scanWorkers {
	w := &scanWorkers{s: s, found: found, jobs: make(chan *job, 2*workerCount)}
	for range min(runtime.GOMAXPROCS(0), workerCount) {
		w.running.Go(func() {
			for j := range w.jobs {
				j.run()
				j.done <- struct{}{}
			}
		})
	}
	return w
}

func (j *job) run() {
	j.records = j.records[:0]
	_ = j.lineScanner.scan(j.block, func(r *RecordLine, _ int) error { // never fails
		j.records = append(j.records, *r)
		return nil
	})
}

// scan begins to scan a copy of a block. It waits while too many blocks are being scanned.
func (w *scanWorkers) scan(block []byte) error {
	if len(w.pending) == cap(w.jobs) {
		if err := w.deliver(); err != nil {
			return err
		}
	}
	var j *job
	if n := len(w.free); n > 0 {
		j, w.free = w.free[n-1], w.free[:n-1]
	} else {
		j = &job{lineScanner: lineScanner{matcher: w.s.matcher}, done: make(chan struct{}, 1)}
	}
	j.block = append(j.block[:0], block...)
	w.pending = append(w.pending, j)
	w.jobs <- j
	return nil
}

// deliver passes the records of the oldest block to the function.
func (w *scanWorkers) deliver() error {
	j := w.pending[0]
	w.pending = append(w.pending[:0], w.pending[1:]...)
	<-j.done
	w.s.skipped.add(j.skipped)
	j.skipped = Skipped{}
	for i := range j.records {
		if err := w.found(&j.records[i]); err != nil {
			return err
		}
	}
	if cap(j.block) <= 2*blockSize { // a block with a long line is not kept
		w.free = append(w.free, j)
	}
	return nil
}

// finish waits for the blocks that are being scanned.
func (w *scanWorkers) finish() error {
	for len(w.pending) > 0 {
		if err := w.deliver(); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the goroutines.
func (w *scanWorkers) stop() {
	close(w.jobs)
	w.running.Wait()
}
