package gateway

import (
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/wire"
)

// takeRate counts a request of a client for its rate limits. If one of them is reached, it returns
// the error of the request; the request must then not run. backend is "" if the request is not for
// a single backend. Lists and other requests that reach no backend are not counted, nor are
// requests that the gateway itself sends for the client.
func takeRate(
	cc *clientConn, method, backend string, kind ratelimit.RequestKind,
) *wire.Error {
	refusal := cc.g.Rates.Take(cc.principal, backend, kind)
	if refusal == nil {
		return nil
	}
	if refusal.Unlogged > 0 {
		cc.log().Warn("rate limit reached: requests are refused", "method", method,
			"backend", backend, "err", refusal, "records", refusal.Unlogged)
	}
	text := refusal.Error() + "; the call did not run"
	data := map[string]any{"reason": refusal.Error(), "retryAfterMs": refusal.Wait.Milliseconds()}
	if backend != "" {
		text, data["backend"] = "backend "+backend+": "+text, backend
	}
	e := wire.Errorf(wire.CodeInternalError, "%s", text)
	e.Data = wire.Encode(data)
	return e
}

// takeRate counts the call for the rate limits, once. It returns false if one of them is reached:
// then the call has ended. It is called when the backend is known, before any queue.
func (c *clientCall) takeRate() bool {
	if c.counted {
		return true
	}
	c.counted = true
	kind := ratelimit.Call
	if c.spec == taskSpec || c.Method == protocol.MethodResourcesUnsubscribe {
		kind = ratelimit.FollowUp
	}
	if err := takeRate(c.conn, c.Method, c.Route.Backend, kind); err != nil {
		c.reject(err)
		return false
	}
	return true
}
