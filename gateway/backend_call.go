package gateway

import (
	"context"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/principal"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// callTask sends a request about a task and waits for the response. A result in which a client
// could read another task than the gateway does becomes an error.
func callTask(ctx context.Context, b Backends, backend string,
	r contract.BackendRequest) contract.BackendResponse {
	resp := callBackend(ctx, b, backend, r)
	err := protocol.CheckTask(resp.Message.Part(wire.PartResult))
	if resp.Err == nil && err != nil {
		return contract.BackendResponse{Err: &peer.BadResponseError{Err: err}}
	}
	return resp
}

// cancelTask sends tasks/cancel, without waiting for the response, because no client knows the task
// or waits for it. p is the principal of the session. A legacy backend that does not support
// tasks/cancel gets no request.
func cancelTask(
	b Backends, p *principal.Principal, session string, task scopedID, modern bool,
) {
	if modern || b.ViewFor(p).HasCapability(task.backend, "tasks", "cancel") {
		m := wire.NewRequest("0", protocol.MethodTasksCancel, taskParams(task.id))
		r := contract.BackendRequest{Message: m, Session: session, AllowTask: true}
		b.NewCall(task.backend, r, make(responseWaiter, 1)).Send()
	}
}

// callBackend sends a request to a backend and waits for the response. When ctx is done, it cancels
// the request.
func callBackend(ctx context.Context, b Backends, backend string,
	r contract.BackendRequest) contract.BackendResponse {
	w := make(responseWaiter, 1)
	return w.sendAndWait(ctx, b.NewCall(backend, r, w))
}

// A responseWaiter is the CallHandler of a caller that waits for the response. It needs a capacity
// of 1, so that OnResponse, which is called once, does not block.
type responseWaiter chan contract.BackendResponse

// OnProgress implements contract.CallHandler.
func (w responseWaiter) OnProgress(wire.Message) {}

// OnResponse implements contract.CallHandler.
func (w responseWaiter) OnResponse(resp contract.BackendResponse) { w <- resp }

// sendAndWait sends a call and waits for the response. When ctx is done, it cancels the call.
func (w responseWaiter) sendAndWait(ctx context.Context,
	call contract.BackendCall) contract.BackendResponse {
	call.Send()
	select {
	case resp := <-w:
		return resp
	case <-ctx.Done():
		call.Cancel(nil)
		return <-w
	}
}
