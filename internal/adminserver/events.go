package adminserver

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/adminapi"
)

// An EventSource knows what happens.
type EventSource interface {
	// Events calls send for each event that f selects until ctx is done or send returns an error.
	// It begins with the current status, if f selects that. Send may block: events are then lost,
	// up to a bound of the source, and the next event says how many.
	Events(ctx context.Context, f EventFilter, send func(*adminapi.AdminEvent) error)
}

// An EventFilter selects events.
type EventFilter struct {
	Types []adminapi.EventType
	Calls adminapi.CallFilter // of the call events; Limit has no meaning
	// of the log events; Since and Limit select earlier lines that are sent first
	Logs LogFilter
}

// Has reports whether events of a type are selected.
func (f *EventFilter) Has(t adminapi.EventType) bool { return slices.Contains(f.Types, t) }

// Bounds of streams of events.
const (
	maxEventStreams = 32
	eventTimeout    = 10 * time.Second // for a reader to accept an event
	keepAlive       = 15 * time.Second
)

// An eventHandler serves streams of server-sent events, each until its client disconnects.
type eventHandler struct {
	EventSource
	streams chan struct{} // an element for each open stream
}

func newEventHandler(source EventSource) *eventHandler {
	return &eventHandler{source, make(chan struct{}, maxEventStreams)}
}

func (h *eventHandler) serve(w http.ResponseWriter, r *http.Request) {
	f, refused := eventFilter(r)
	if refused != nil {
		writeError(w, http.StatusBadRequest, refused)
		return
	}
	select {
	case h.streams <- struct{}{}:
		defer func() { <-h.streams }()
	default:
		writeError(w, http.StatusServiceUnavailable, &adminapi.APIError{
			Text: "too many streams of events", Hint: "close one of them"})
		return
	}
	unlimited(w)
	w.Header().Set("Content-Type", "text/event-stream")
	ctx, end := context.WithCancel(r.Context())
	defer end()
	s := &eventWriter{w: w, c: http.NewResponseController(w)}
	if s.write(": events of the gateway\n\n") != nil {
		return
	}
	var pinging sync.WaitGroup
	defer pinging.Wait()
	defer end()
	pinging.Go(func() { s.keepAlive(ctx, end) })
	h.Events(ctx, f, s.send)
}

// eventFilter reads the query of GET /api/v1/events.
func eventFilter(r *http.Request) (f EventFilter, refused *adminapi.APIError) {
	q := r.URL.Query()
	f.Types = adminapi.EventTypes
	if text := q.Get("types"); text != "" {
		f.Types = nil
		for name := range strings.SplitSeq(text, ",") {
			t := adminapi.EventType(name)
			if !slices.Contains(adminapi.EventTypes, t) {
				return f, &adminapi.APIError{Text: "there are no events of this type: " + name,
					Hint: "the types are status, call, log and catalog"}
			}
			f.Types = append(f.Types, t)
		}
	}
	if f.Calls, refused = callFilter(q); refused == nil {
		f.Logs, refused = logFilter(q, 0)
	}
	return f, refused
}

// An eventWriter writes server-sent events.
type eventWriter struct {
	mu sync.Mutex // held during a write, so that events are not mixed with comments
	w  http.ResponseWriter
	c  *http.ResponseController
}

// send writes an event. It blocks until the client has accepted it, for at most eventTimeout.
func (s *eventWriter) send(e *adminapi.AdminEvent) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return s.write("event: " + string(e.Type) + "\ndata: " + string(data) + "\n\n")
}

func (s *eventWriter) write(text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.c.SetWriteDeadline(time.Now().Add(eventTimeout))
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.c.Flush()
}

// keepAlive writes comments until ctx is done. It calls end when the client has disconnected.
func (s *eventWriter) keepAlive(ctx context.Context, end func()) {
	t := time.NewTicker(keepAlive)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if s.write(":\n\n") != nil {
				end()
				return
			}
		}
	}
}
