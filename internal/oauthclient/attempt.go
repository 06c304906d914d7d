package oauthclient

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Bounds of the attempts of an Authorization to obtain a token.
const (
	// failurePause is the time after a failed attempt in which further requests with the same token
	// fail with the same error, without another attempt.
	failurePause = 5 * time.Second
	// maxAttempts is the number of attempts that may follow each other at once. One more is
	// permitted after each attemptInterval.
	maxAttempts     = 20
	attemptInterval = 3 * time.Second
	// attemptTimeout is the longest time of an attempt. endGrace is the longest time for which an
	// attempt continues when the program, or the use of the server, ends.
	attemptTimeout = 30 * time.Second
	endGrace       = 3 * time.Second
)

// errTooOften is the error of a request that needs an attempt after too many others. It is not
// shown: the token at hand is used, and the response of the server to it.
var errTooOften = errors.New("too many attempts")

// errEnding is the error of a request that needs an attempt when the program ends.
var errEnding = errors.New("the gateway is ending")

// attempts are the attempts to obtain a token in place of another one. One attempt runs at a time,
// and all requests that need another token share it.
type attempts struct {
	// start runs a function in a goroutine, and reports false if no goroutine can be started.
	start func(func(context.Context)) bool

	mu      sync.Mutex
	running *attempt // nil = none
	// failed is the error of the last attempt, failedFor its purpose, and failedAt its end.
	failed    error
	failedFor string
	failedAt  time.Time
	// used is the number of attempts that count against maxAttempts, at the time usedAt.
	used   float64
	usedAt time.Time
}

// An attempt is one of attempts.
type attempt struct {
	done chan struct{} // closed at its end
	err  error         // set before done is closed
}

// share calls obtain, which obtains another token, and returns its error. purpose is the token to
// replace, or names another purpose. If an attempt runs already, share waits for this one instead,
// and returns its error. It returns an error at once in the failurePause after a failure for the
// same purpose, and after too many attempts. It returns the cause of ctx if ctx is done first; the
// attempt then continues, because the authorization server may have replaced the refresh token
// already. If no goroutine can be started, the attempt runs in share, for at most endGrace.
func (a *attempts) share(
	ctx context.Context, purpose string, obtain func(context.Context) error,
) error {
	run, begin, err := a.join(purpose, obtain)
	if err != nil {
		return err
	}
	if begin != nil && !a.start(begin) {
		ended, cancel := context.WithCancel(context.WithoutCancel(ctx))
		cancel()
		begin(ended)
	}
	select {
	case <-run.done:
		return run.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin starts an attempt, unless one for the purpose is running. It does not wait.
func (a *attempts) begin(purpose string, obtain func(context.Context) error) {
	run, begin, err := a.join(purpose, obtain)
	if err == nil && begin != nil && !a.start(begin) {
		a.end(run, purpose, errEnding)
	}
}

// join returns the attempt that runs. If it is a new one, the caller must call begin.
func (a *attempts) join(purpose string, obtain func(context.Context) error) (
	run *attempt, begin func(context.Context), err error,
) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running != nil {
		return a.running, nil, nil
	}
	now := time.Now()
	if a.failed != nil && a.failedFor == purpose && now.Sub(a.failedAt) < failurePause {
		return nil, nil, a.failed
	}
	a.used = max(0, a.used-float64(now.Sub(a.usedAt))/float64(attemptInterval))
	a.usedAt = now
	if a.used > maxAttempts-1 {
		return nil, nil, errTooOften
	}
	a.used++
	run = &attempt{done: make(chan struct{})}
	a.running = run
	return run, func(parent context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(parent), attemptTimeout)
		defer cancel()
		stop := context.AfterFunc(parent, func() { time.AfterFunc(endGrace, cancel) })
		defer stop()
		a.end(run, purpose, obtain(ctx))
	}, nil
}

// end ends an attempt.
func (a *attempts) end(run *attempt, purpose string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.running = nil
	a.failed, a.failedFor, a.failedAt = err, purpose, time.Now()
	run.err = err
	close(run.done)
}
