package adminapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// An EventType is a type of events.
type EventType string

// The types of events.
const (
	// The status has changed; at most one event per second is sent because of calls.
	StatusEvents  EventType = "status"
	CallEvents    EventType = "call"    // the backend of a call is known, or a call has ended
	LogEvents     EventType = "log"     // a line of the log
	CatalogEvents EventType = "catalog" // the merged catalog has changed
	LostEvents    EventType = "lost"    // events were lost because the reader was slow
)

// EventTypes are the types that a reader may ask for. LostEvents are sent to all.
var EventTypes = []EventType{StatusEvents, CallEvents, LogEvents, CatalogEvents}

// An AdminEvent is a server-sent event of GET /api/v1/events. The field of its type is set.
type AdminEvent struct {
	Type    EventType      `json:"type"`
	Status  *GatewayStatus `json:"status,omitempty"`
	Call    *CallStatus    `json:"call,omitempty"`
	Log     *LogEntry      `json:"log,omitempty"`
	Catalog *CatalogState  `json:"catalog,omitempty"`
	Lost    *LostCount     `json:"lost,omitempty"`
}

// A CatalogState is the size of the merged catalog after a change.
type CatalogState struct {
	Lists ListCounts `json:"lists"`
}

// A LostCount says how many events were lost.
type LostCount struct {
	Calls int `json:"calls"`
	Logs  int `json:"logs"`
}

// A LogEntry is a line of the log of the gateway, with secrets masked.
type LogEntry struct {
	Time    time.Time `json:"time"`
	Level   string    `json:"level"` // as in the log
	Message string    `json:"msg"`
	Backend string    `json:"backend,omitempty"`
	Attrs   string    `json:"attrs,omitempty"` // other attributes, as text
}

// maxEvent bounds the size of an event that an APIClient reads, in bytes.
const maxEvent = 4 << 20

// errStreamEnded is the error of an event stream that the gateway has closed.
var errStreamEnded = errors.New("the gateway has closed the stream of events")

// Events calls handle for each event of these types until ctx is done, the gateway ends or handle
// returns an error, which Events then returns.
func (c *APIClient) Events(
	ctx context.Context, types []EventType, query url.Values, handle func(*AdminEvent) error,
) error {
	q := make(url.Values)
	for key, values := range query {
		q[key] = values
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	q.Set("types", strings.Join(names, ","))
	resp, err := c.do(ctx, http.MethodGet, "/api/v1/events", q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData {
			continue // an event has one line of data, and its type is in the data
		}
		e := new(AdminEvent)
		if err := json.Unmarshal([]byte(data), e); err != nil {
			return fmt.Errorf("event of the gateway: %w", err)
		}
		if err := handle(e); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errStreamEnded, lines.Err())
}
