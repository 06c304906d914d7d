package backends

import (
	"context"
	"fmt"
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/wire"
)

// longestProbeTimeout is how long a backend may be silent when it is asked for its era, before
// it is greeted as one of the session era, too.
const longestProbeTimeout = 5 * time.Second

// Its answer may come as late as this after the one to initialize, and if that was a
// refusal, so that it all depends on it, as late as that.
const (
	lateResponseWait    = 20 * time.Millisecond
	refusedResponseWait = time.Second
)

func (b *Backend) probeTimeout() time.Duration {
	if t := b.cfg.StartTimeout / 3; t > 0 {
		return min(t, longestProbeTimeout)
	}
	return longestProbeTimeout
}

// A discoverResult is what came of the question.
type discoverResult struct {
	server serverInfo
	err    error // classic, or why there is no answer
}

// probe finds out over a pipe of which era the backend is, and shakes hands
// accordingly. One that ends because of the question is known for it: retryOtherError. One
// that is silent may only be slow to start, so it is not ended but greeted as well,
// and the answer that comes counts.
func (bc *backendConn) probe(ctx context.Context, p *peer.Peer) (serverInfo, error) {
	asking, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	found := make(chan discoverResult, 1)
	running.Go(func() {
		s, err := bc.discover(asking, p)
		found <- discoverResult{s, err}
	})
	select {
	case d := <-found:
		return bc.afterProbe(ctx, p, d)
	case <-time.After(bc.b.probeTimeout()):
	}
	return bc.initializeSilent(ctx, p, found)
}

// initializeSilent greets a backend that has not answered the question of its era, and sees
// what comes first.
func (bc *backendConn) initializeSilent(ctx context.Context, p *peer.Peer, found <-chan discoverResult) (serverInfo, error) {
	s, err := bc.initialize(ctx, p)
	refused := isA[*wire.Error](err)
	wait := lateResponseWait
	if refused {
		wait = refusedResponseWait
	}
	var late discoverResult
	silent := true
	select {
	case late = <-found:
		silent = late.err != nil && !isA[legacyServerError](late.err)
	case <-time.After(wait):
	}
	switch {
	case err != nil && !silent && late.err == nil:
		return late.server, nil
	case !silent && late.err == nil: // it is of both: the next process is asked, too
	case !silent:
		bc.b.setGeneration(detected{generation: legacyGeneration})
	case err == nil:
		bc.log.Info("backend answers initialize, but not server/discover; with `era: legacy` it is not asked that", "dur", bc.b.probeTimeout())
		bc.b.setGeneration(detected{generation: legacyGeneration, unprobeable: true})
	case refused, ctx.Err() == context.Canceled:
	default: // it did not start in time, or has ended
		bc.b.setGeneration(detected{generation: legacyGeneration, unprobeable: true})
		if ctx.Err() == nil {
			err = retryOtherError{err}
		} else {
			err = fmt.Errorf("%w (it was sent server/discover first and did not answer; if it hangs at requests that it does not know, set `era: legacy`)",
				timeoutCause(ctx, err))
		}
	}
	return s, err
}

// afterProbe goes on with what a backend at a pipe has answered.
func (bc *backendConn) afterProbe(ctx context.Context, p *peer.Peer, d discoverResult) (serverInfo, error) {
	switch {
	case d.err == nil:
		return d.server, nil
	case isA[legacyServerError](d.err):
		bc.b.setGeneration(detected{generation: legacyGeneration})
		return bc.initialize(ctx, p)
	case ctx.Err() != nil:
		return serverInfo{}, d.err
	}
	bc.log.Debug("backend ended when it was asked server/discover; starting it again without", "err", d.err)
	bc.probeErr = d.err
	bc.b.setGeneration(detected{generation: legacyGeneration, unprobeable: true})
	return serverInfo{}, retryOtherError{d.err}
}
