package adminserver_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/adminserver"
)

// endlessEvents sends log events without end, as fast as the reader accepts them.
type endlessEvents struct{ ended chan struct{} }

func (s endlessEvents) Events(
	ctx context.Context, f adminserver.EventFilter, send func(*adminapi.AdminEvent) error,
) {
	defer close(s.ended)
	for i := 0; ctx.Err() == nil; i++ {
		err := send(&adminapi.AdminEvent{Type: adminapi.LogEvents, Log: &adminapi.LogEntry{
			Message: "line " + strconv.Itoa(i), Backend: strings.Join(f.Logs.Backends, ",")}})
		if err != nil {
			return
		}
	}
}

// waitingEvents sends nothing until the reader is gone.
type waitingEvents struct{}

func (waitingEvents) Events(
	ctx context.Context, _ adminserver.EventFilter, _ func(*adminapi.AdminEvent) error,
) {
	<-ctx.Done()
}

func TestEventsAreStreamed(t *testing.T) {
	source := endlessEvents{make(chan struct{})}
	at := serve(t, adminserver.Options{Events: source}, adminserver.AccessRule{})
	resp, err := http.Get("http://" + at + "/api/v1/events?types=log&backend=docs")
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Error(got)
	}
	lines := bufio.NewScanner(resp.Body)
	want := []string{": events of the gateway", "", "event: log",
		`data: {"type":"log","log":{"time":"0001-01-01T00:00:00Z","level":"","msg":"line 0",` +
			`"backend":"docs"}}`, ""}
	for _, line := range want {
		if !lines.Scan() || lines.Text() != line {
			t.Fatalf("%q, want %q", lines.Text(), line)
		}
	}
	resp.Body.Close()
	<-source.ended
}

// A reader that accepts nothing blocks only its own stream, and the end of the server ends it.
func TestReaderThatDoesNotRead(t *testing.T) {
	source := endlessEvents{make(chan struct{})}
	at := serve(t, adminserver.Options{Events: source}, adminserver.AccessRule{})
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /api/v1/events HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if status, _ := send(t, "GET", "http://"+at+"/api/v1/status", nil); status != 200 {
			t.Errorf("%d", status)
		}
	}
}

func TestStreamsOfEventsAreBounded(t *testing.T) {
	at := "http://" + serve(t, adminserver.Options{Events: waitingEvents{}},
		adminserver.AccessRule{}) + "/api/v1/events"
	for range 32 {
		resp, err := http.Get(at)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	if status, text := send(t, "GET", at, nil); status != 503 ||
		!strings.Contains(text, "too many streams") {
		t.Errorf("%d %s", status, text)
	}
}

func TestBadParametersAreRefused(t *testing.T) {
	at := "http://" + serve(t, adminserver.Options{Events: waitingEvents{}},
		adminserver.AccessRule{}) + "/api/v1/"
	for query, want := range map[string]string{
		"events?types=nonsense": "no events of this type: nonsense",
		"events?level=loud":     "no such level",
		"calls?slower=soon":     "slower is not a duration",
		"calls?slower=-1s":      "slower is not a duration",
		"calls?limit=x":         "limit is not a number from 0 to 1000",
		"calls?limit=1001":      "limit is not a number from 0 to 1000",
		"events?since=tomorrow": "since is not a time",
	} {
		status, text := send(t, "GET", at+query, nil)
		if status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", query, status, text)
		}
	}
}
