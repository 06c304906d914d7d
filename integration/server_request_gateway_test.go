//go:build unix

package integration

import (
	"context"
	"net/http"
	"testing"
)

// A client cancels a call like the go-sdk's: it disconnects from the call's stream, and its next
// request may arrive before the cancellation. A request that the next call's tool sends must
// still reach the client. Over stdio the backend does not name the related call, and nobody
// reads the stream of the cancelled call.
func TestServerRequest_SurvivesCancelledCall(t *testing.T) {
	t.Parallel()
	notes := notesFile(t)
	in := newInProcess(t, inProcessOptions{},
		configBackend(helperBackend("features", "features", notes), "session"))
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	progress, elicitations, responses := make(chan message, 1), make(chan message, 9),
		make(chan message, 9)
	v, err := dialStreams(ctx, http.DefaultClient, in.url, `{"elicitation":{},"sampling":{}}`,
		func(_ string, m message) {
			switch m.Method {
			case "notifications/progress":
				progress <- m
			case "elicitation/create":
				elicitations <- m
			case "":
				responses <- m
			}
		})
	if err == nil {
		err = v.openStandalone()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer v.disconnect()
	// A client of the same session, whose stream can be disconnected alone.
	cancelledStream := &streamClient{url: v.url, session: v.session, client: v.client,
		onMessage: v.onMessage}
	cancelledStream.ctx, cancelledStream.cancel = context.WithCancel(ctx)
	disconnected := make(chan error, 1)
	go func() {
		disconnected <- cancelledStream.post("1",
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold","_meta":{"progressToken":1}}}`)
	}()
	next(t, "progress", progress)
	cancelledStream.cancel()
	next(t, "end of the stream", disconnected)
	v.streams.Go(func() { // the test does not wait for the response, which follows the elicitation
		_ = v.post("2", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"elicit"}}`)
	})
	awaitNote(t, notes, "elicits")
	if err := v.post("",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`); err != nil {
		t.Fatal(err)
	}
	elicitation := next(t, "elicitation", elicitations)
	if err := v.post("", `{"jsonrpc":"2.0","id":`+string(elicitation.ID)+
		`,"result":{"action":"decline"}}`); err != nil {
		t.Fatal(err)
	}
	if m := next(t, "response", responses); string(m.ID) != "2" || m.Result == nil {
		t.Errorf("response: %s", m.Raw)
	}
}
