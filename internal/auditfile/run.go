package auditfile

import (
	"context"
	"os"
	"time"
)

// Run looks for work at least every longestPause, because other processes may write to the file and
// the clock may be set, and at most every shortestPause.
const (
	longestPause  = time.Hour
	shortestPause = time.Second
	retryPause    = time.Minute // after a failed compression
)

// Run rotates the file when its first line has the age Options.MaxAge, removes former files beyond
// the limits, and compresses former files, until ctx is done. Then it stops a compression that is
// in progress, which the next Run repeats, and returns nil. It must be called at most once.
func (f *File) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		case <-timer.C:
		}
		pause := f.maintain()
		c := compressor{f.path, &f.lock, f.compression()}
		err := c.run(ctx)
		if err != nil {
			pause = min(pause, retryPause)
		}
		f.problems.note(compressing, err)
		timer.Reset(max(shortestPause, min(pause, longestPause)))
	}
}

func (f *File) compression() Compression {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.options.Compress
}

// maintain rotates an old file, removes former files beyond the limits, and returns the time until
// the next file is too old.
func (f *File) maintain() (pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open.File == nil || f.lock.isDevice {
		return longestPause
	}
	if f.isPathOld() {
		alone, unlock := f.lockToWrite()
		f.problems.note(writing, f.prepare(alone))
		unlock()
	}
	former, _ := formerFiles(f.path)
	if len(f.options.Keep.excess(former)) > 0 {
		if unlock, ok, _ := f.lock.try(true, lockWait); ok {
			f.problems.note(rotating, removeFormer(f.path, f.options.Keep))
			unlock()
		}
	}
	return f.untilWork(former)
}

// untilWork returns the time until a file is too old.
func (f *File) untilWork(former []formerFile) time.Duration {
	pause := longestPause
	if info, err := os.Stat(f.path); err == nil && info.Size() > 0 && f.options.MaxAge > 0 {
		pause = f.untilOld()
	}
	if n := len(former); n > 0 && f.options.Keep.Age > 0 {
		expires := former[n-1].info.ModTime().Add(f.options.Keep.Age)
		pause = min(pause, time.Until(expires))
	}
	return pause
}
