//go:build unix

package integration

import (
	"context"
	"net/http"
	"testing"
)

// A client cancels a call, as the go-sdk's does: it hangs up on the call's stream, and what it says next may overtake the
// cancellation. What the next call's tool asks must reach it all the same. Over stdio nobody tells on whose behalf
// it asks, and the stream of the cancelled call is one that nobody reads any more.
func TestQuestionSurvivesTheEndOfAnotherCall(t *testing.T) {
	t.Parallel()
	notes := notesFile(t)
	in := newInside(t, insideOptions{}, of(actor("asker", "asker", notes), "session"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	progress, asked, answers := make(chan message, 1), make(chan message, 9), make(chan message, 9)
	v, err := visit(ctx, http.DefaultClient, in.url, `{"elicitation":{},"sampling":{}}`, func(_ string, m message) {
		switch m.Method {
		case "notifications/progress":
			progress <- m
		case "elicitation/create":
			asked <- m
		case "":
			answers <- m
		}
	})
	if err == nil {
		err = v.listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer v.vanish()
	held := &visitor{url: v.url, session: v.session, client: v.client, hear: v.hear} // the same session, on a stream that ends alone
	held.ctx, held.cancel = context.WithCancel(ctx)
	hungUp := make(chan error, 1)
	go func() {
		hungUp <- held.post("1", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"hold","_meta":{"progressToken":1}}}`)
	}()
	next(t, "progress", progress)
	held.cancel()
	next(t, "end of the stream", hungUp)
	v.streams.Go(func() { // not waited for: it is answered after the question
		_ = v.post("2", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"elicit"}}`)
	})
	awaitNote(t, notes, "elicits")
	if err := v.post("", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`); err != nil {
		t.Fatal(err)
	}
	question := next(t, "question", asked)
	if err := v.post("", `{"jsonrpc":"2.0","id":`+string(question.ID)+`,"result":{"action":"decline"}}`); err != nil {
		t.Fatal(err)
	}
	if m := next(t, "answer", answers); string(m.ID) != "2" || m.Result == nil {
		t.Errorf("answer: %s", m.Raw)
	}
}
