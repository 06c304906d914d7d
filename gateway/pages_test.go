package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

// requestPage requests a page and returns its result and the next cursor.
func requestPage(t *testing.T, client *mcptest.Peer, kind catalog.Kind,
	cursor string) (result, next string) {
	t.Helper()
	params := "{}"
	if cursor != "" {
		params = `{"cursor":` + cursor + `}`
	}
	client.Sendf(`{"jsonrpc":"2.0","id":"page","method":%q,"params":%s}`, kind.ListMethod(), params)
	m := client.NextMessage()
	if failure := m.Part(wire.PartError); failure != nil {
		return wire.ReadError(failure).Message, ""
	}
	value, _ := wire.Lookup(m.Part(wire.PartResult), "nextCursor")
	return string(m.Part(wire.PartResult)), string(value)
}

// PAGE-03: all entries are listed page by page. All pages of a listing come from one snapshot,
// even if the list changes meanwhile. A cursor of an earlier list is unknown.
func TestPAGE_03_PagesComeFromOneSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{pageSize: 500}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		gh := h.nextProcess("gh")
		names := func(prefix string) (all []string) {
			for i := range 101 {
				all = append(all, fmt.Sprintf("%s%03d", prefix, i))
			}
			return all
		}
		gh.ServeStartup(names("a")...)
		collect := func(prefix string, change func()) {
			t.Helper()
			var got []string
			pages := 0
			for cursor := ""; pages == 0 || cursor != ""; pages++ {
				var result string
				result, cursor = requestPage(t, client, catalog.Tools, cursor)
				list, _ := wire.Lookup([]byte(result), "tools")
				for _, one := range wire.Elements(list) {
					name, _ := wire.Lookup(one, "name")
					got = append(got, wire.Unquote(name))
				}
				if pages == 3 {
					change()
				}
			}
			if strings.Join(got, " ") != strings.Join(names(prefix), " ") || pages < 5 {
				t.Errorf("%d pages, of %q", pages, got)
			}
		}
		collect("a", func() {
			gh.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			gh.ServeToolsList(mcptest.ToolsResult(names("b")...))
			time.Sleep(time.Second)
			client.WantNotification("notifications/tools/list_changed")
		})
		_, old := requestPage(t, client, catalog.Tools, "") // cursor of the list with b
		collect("b", func() {
			gh.Send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			gh.ServeToolsList(mcptest.ToolsResult(names("a")...))
			time.Sleep(time.Second)
			client.WantNotification("notifications/tools/list_changed")
		})
		_, cursor := requestPage(t, client, catalog.Tools, "") // cursor of the list with a
		if got, _ := requestPage(t, client, catalog.Tools, old); got !=
			"Invalid params: unknown cursor" {
			t.Errorf("an old cursor returned %s", got)
		}
		if got, _ := requestPage(t, client, catalog.Prompts, cursor); got !=
			"Invalid params: unknown cursor" {
			t.Errorf("a cursor of tools returned %s", got)
		}
		// a client that has read no list uses a cursor of the same list
		another, _ := h.connectClient()
		another.Initialize("2025-11-25")
		one, _ := requestPage(t, client, catalog.Tools, cursor)
		if got, _ := requestPage(t, another, catalog.Tools, cursor); got != one {
			t.Errorf("got %s\nwant %s", got, one)
		}
	})
}

// A change is notified to clients that have requested the list. A change of resources or resource
// templates causes a single notification.
func TestNOTIF_07_PromptAndResourceChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b, backends := openTwoClients(t, settings{}, "gh")
		gh := backends["gh"]
		listTools(t, b)
		change := func(n int) {
			t.Helper()
			gh.Send(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`)
			gh.SendResult(gh.WantRequest("prompts/list").ID(),
				fmt.Sprintf(`{"prompts":[{"name":"p%d"}]}`, n))
			gh.Send(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
			gh.SendResult(gh.WantRequest("resources/list").ID(),
				fmt.Sprintf(`{"resources":[{"uri":"r%d://"}]}`, n))
			gh.SendResult(gh.WantRequest("resources/templates/list").ID(),
				fmt.Sprintf(`{"resourceTemplates":[{"uriTemplate":"t%d://{x}"}]}`, n))
			time.Sleep(time.Second)
		}
		change(1)
		a.WantNothing() // it has requested nothing
		requestPage(t, a, catalog.Templates, "")
		change(2)
		a.WantNotification("notifications/resources/list_changed")
		a.WantNothing()
		requestPage(t, a, catalog.Prompts, "")
		requestPage(t, a, catalog.Resources, "")
		requestPage(t, a, catalog.Templates, "")
		change(3)
		a.WantNotification("notifications/prompts/list_changed")
		a.WantNotification("notifications/resources/list_changed")
		a.WantNothing()
		b.WantNothing()
		// A prompt name is resolved by the list that the client was shown.
		a.Send(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p2"}}`)
		gh.WantRequest("prompts/get")
	})
}

// Before the client has read a list, its requests wait for starting backends, because these may
// list the prompt, the resource or a template that matches.
func TestRequestsWaitForStartingBackends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{startTimeout: 10 * time.Second}, "gh", "docs")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25")
		client.Send(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"docs"}}`)
		client.Send(`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"docs://"}}`)
		client.Send(
			`{"jsonrpc":"2.0","id":3,"method":"resources/read","params":{"uri":"nobody://"}}`)
		client.Send(
			`{"jsonrpc":"2.0","id":4,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"docs://"}}}`)
		client.Send(
			`{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":"taken://back"}}`)
		client.Send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
		gh, docs := h.nextProcess("gh"), h.nextProcess("docs")
		serveFullStartup(docs, "docs")
		docs.WantNothing()
		serveFullStartup(gh, "gh") // the first backend has listed
		for _, line := range docs.TakeAll() {
			m, _ := wire.Parse([]byte(line))
			docs.SendResult(m.ID(), `{"of":`+string(wire.Quote(m.Method()))+"}")
		}
		got := client.TakeAll()
		slices.Sort(got)
		if want := []string{
			`{"jsonrpc":"2.0","id":1,"result":{"of":"prompts/get"}}`,
			`{"jsonrpc":"2.0","id":2,"result":{"of":"resources/read"}}`,
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32002,"message":"Resource not found","data":{"uri":"nobody://"}}}`,
			`{"jsonrpc":"2.0","id":4,"result":{"completion":{"values":[],"hasMore":false}}}`,
		}; !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
		if records := h.journal.Lines(`outcome=cancelled`); len(records) != 1 {
			t.Errorf("recorded %q", h.journal.Lines())
		}
	})
}

// A session whose connection is closed ends without a grace period and without an error.
func TestDisconnectedSessionEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh, served, ofCall := startCallThatAsks(t, settings{grace: time.Hour},
			allClientCaps)
		client.FailRead(fmt.Errorf("idle: %w", transport.ErrClosed))
		began := time.Now()
		if err := <-served; err != nil || time.Since(began) != 0 {
			t.Errorf("Serve: %v, after %v", err, time.Since(began))
		}
		if m := gh.WantNotification("notifications/cancelled"); m.RequestID() != ofCall.ID() {
			t.Errorf("got %s", m.Raw())
		}
	})
}

// Two sessions never have the same id at the same time. An id can be used again when its session
// has ended.
func TestSessionIDIsUnique(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{})
		serve := func() (*mcptest.Peer, chan error) {
			conn, p := mcptest.NewPeer(t, "client")
			served := make(chan error, 1)
			go func() { served <- h.gateway.Serve(context.Background(), "mine", nil, conn) }()
			synctest.Wait()
			return p, served
		}
		first, served := serve()
		second, refused := serve()
		if err := <-refused; err == nil || errors.Is(err, transport.ErrClosed) ||
			!second.Disconnected() {
			t.Errorf("Serve: %v", err)
		}
		first.Initialize("2025-11-25")
		first.CloseSend()
		if err := <-served; err != nil {
			t.Error(err)
		}
		third, _ := serve()
		third.Initialize("2025-11-25")
	})
}

// CONC-01: requests that wait for a task or for a backend that does not respond do not block other
// requests.
func TestCONC_01_WaitingRequestsBlockNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, _, backends := openTwoClients(t, settings{}, "slow", "quick")
		slow, quick := backends["slow"], backends["quick"]
		makeTask(t, a, slow, "slow", "t")
		sendTaskRequest(a, "tasks/result", "t")
		a.Send(`{"jsonrpc":"2.0","id":1,"method":"tasks/list"}`)
		a.Send(`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"slow://"}}`)
		a.Send(`{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"info"}}`)
		quick.SendResult(quick.WantRequest("logging/setLevel").ID(), "{}")
		began := time.Now()
		a.Send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`)
		a.Want(`{"jsonrpc":"2.0","id":4,"result":{}}`)
		requestPage(t, a, catalog.Prompts, "")
		a.Send(`{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":"quick://"}}`)
		quick.SendResult(quick.WantRequest("resources/read").ID(), "{}")
		a.Want(`{"jsonrpc":"2.0","id":5,"result":{}}`)
		if took := time.Since(began); took != 0 {
			t.Errorf("the requests took %v", took)
		}
	})
}

// The size of a client's capabilities is bounded, because they are stored until the session ends.
func TestCapabilitiesLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{})
		client, _ := h.connectClient()
		for _, caps := range []string{`{"x":"` + strings.Repeat("x", 64<<10) + `"}`, "7", "[]"} {
			client.Send(
				`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + caps + `,"clientInfo":{"name":"x","version":"1"}}}`)
			if got := client.Next(); !strings.Contains(got, `"error":{"code":-32602`) {
				t.Errorf("got %s", got)
			}
		}
		client.Initialize("2025-11-25", "null")
	})
}
