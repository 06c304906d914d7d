package auditfile

import (
	"log/slog"
	"os"
	"sync"
	"time"
)

// A FileStatus describes an audit file.
type FileStatus struct {
	Path        string
	Size        int64     // bytes of the file
	Written     int64     // bytes that this process has written, without links
	Former      int       // number of former files
	FormerSize  int64     // bytes of the former files, as stored
	Problem     string    // what does not work, and why; "" = everything works
	ProblemFrom time.Time // since when; zero = everything works
}

// Status returns the status of the file. It reads the directory of the file.
func (f *File) Status() FileStatus {
	f.mu.Lock()
	s := FileStatus{Path: f.path, Written: f.bytes}
	f.mu.Unlock()
	if info, err := os.Stat(f.path); err == nil {
		s.Size = info.Size()
	}
	former, _ := formerFiles(f.path)
	for _, file := range former {
		s.Former++
		s.FormerSize += file.info.Size()
	}
	s.Problem, s.ProblemFrom = f.problems.first()
	return s
}

// An action is something that may fail.
type action int

const (
	writing action = iota
	rotating
	compressing
	locking
	linking
	actions
)

var failed = [actions]string{
	writing:     "audit file not writable: records lost",
	rotating:    "audit file not rotated",
	compressing: "former audit file not compressed",
	locking:     "audit file written without its lock",
	linking:     "audit chain begins again: the records before were not read",
}

var worksAgain = [actions]string{
	writing:     "audit file writable again",
	rotating:    "audit file rotated again",
	compressing: "former audit files compressed again",
	locking:     "audit file written with its lock again",
	linking:     "audit chain continued",
}

// problems are the actions that fail at present. Of several equal failures in a row, the first is
// logged.
type problems struct {
	log  *slog.Logger
	path string

	mu  sync.Mutex
	all [actions]problem
}

type problem struct {
	err  error // nil = the action works
	from time.Time
}

// note records the result of an action.
func (p *problems) note(a action, err error) {
	p.mu.Lock()
	before := p.all[a].err
	p.all[a].err = err
	if before == nil && err != nil {
		p.all[a].from = time.Now()
	}
	p.mu.Unlock()
	switch {
	case before == nil && err != nil:
		p.log.Error(failed[a], "file", p.path, "err", err)
	case before != nil && err == nil:
		p.log.Info(worksAgain[a], "file", p.path)
	}
}

// first returns the most important action that fails.
func (p *problems) first() (text string, from time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a, problem := range p.all {
		if problem.err != nil {
			return failed[a] + ": " + problem.err.Error(), problem.from
		}
	}
	return "", time.Time{}
}
