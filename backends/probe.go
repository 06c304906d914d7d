package backends

import (
	"context"
	"fmt"
	"sync"
	"time"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// longestProbeTimeout is the longest wait for a response to server/discover before initialize is
// sent as well.
const longestProbeTimeout = 5 * time.Second

// Waits for the response to server/discover after the response to initialize: lateResponseWait
// after a result, and refusedResponseWait after an error, because then the response to
// server/discover decides.
const (
	lateResponseWait    = 20 * time.Millisecond
	refusedResponseWait = time.Second
)

func (h *serverHandshake) probeTimeout() time.Duration {
	if t := h.conn.b.cfg.StartTimeout / 3; t > 0 {
		return min(t, longestProbeTimeout)
	}
	return longestProbeTimeout
}

// A discoverResult is the outcome of server/discover.
type discoverResult struct {
	server serverInfo
	err    error // a legacyServerError, or the reason for the lack of a response
}

// probe detects the generation of a backend on stdio, and performs the handshake of that
// generation. If the backend ends because of server/discover, it is unprobeable, and the method
// probe returns a retryOtherError. If the backend does not respond within probeTimeout, it may only
// be slow to start: probe sends initialize as well, to the same process.
func (h *serverHandshake) probe(ctx context.Context) (serverInfo, error) {
	probeCtx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	found := make(chan discoverResult, 1)
	running.Go(func() {
		s, err := h.link.discover(probeCtx)
		found <- discoverResult{s, err}
	})
	select {
	case d := <-found:
		return h.afterProbe(ctx, d)
	case <-time.After(h.probeTimeout()):
	}
	return h.initializeSilent(ctx, found)
}

// initializeSilent sends initialize to a backend that has not responded to server/discover, and
// waits for the response. It then waits for the response to server/discover for lateResponseWait or
// refusedResponseWait. A result of initialize has precedence over a result of server/discover.
func (h *serverHandshake) initializeSilent(ctx context.Context,
	found <-chan discoverResult) (serverInfo, error) {
	s, err := h.initialize(ctx)
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
	case !silent && late.err == nil:
		// the server supports both generations: the next process is also probed
	case !silent:
		h.detection.setGeneration(detectedGeneration{generation: protocol.Legacy})
	case err == nil:
		h.conn.log.Info(
			"initialize succeeded without a response to server/discover; `era: legacy` avoids the probe",
			"dur", h.probeTimeout())
		h.detection.setGeneration(unprobeableLegacy)
	case refused, ctx.Err() == context.Canceled:
	default: // it was not ready in time, or has ended
		h.detection.setGeneration(unprobeableLegacy)
		if ctx.Err() == nil {
			err = retryOtherError{err}
		} else {
			err = fmt.Errorf(
				"%w (it was sent server/discover first and did not respond; if it hangs on unknown requests, set `era: legacy`)",
				timeoutCause(ctx, err))
		}
	}
	return s, err
}

// afterProbe continues after server/discover on stdio has succeeded or failed.
func (h *serverHandshake) afterProbe(ctx context.Context,
	d discoverResult) (serverInfo, error) {
	switch {
	case d.err == nil:
		return d.server, nil
	case isA[legacyServerError](d.err):
		h.detection.setGeneration(detectedGeneration{generation: protocol.Legacy})
		return h.initialize(ctx)
	case ctx.Err() != nil:
		return serverInfo{}, d.err
	}
	h.conn.log.Debug("backend ended on server/discover; starting it without the probe", "err", d.err)
	h.probeErr = d.err
	h.detection.setGeneration(unprobeableLegacy)
	return serverInfo{}, retryOtherError{d.err}
}
