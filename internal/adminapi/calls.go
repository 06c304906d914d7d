package adminapi

import (
	"net/url"
	"strconv"
	"time"
)

// A CallStatus is a call in flight, or one of the last ended calls. The keys that the audit record
// of the call has too have the same values there.
type CallStatus struct {
	Call string `json:"call"` // its call id
	CallClient
	CallRoute
	Started time.Time `json:"started"`
	BytesIn int       `json:"bytes_in"`
	// Age is the time since the call was received, in milliseconds, of a call in flight.
	Age *float64    `json:"age_ms,omitempty"`
	End *CallResult `json:"end,omitempty"` // nil = it is in flight
}

// A CallClient is the client of a call.
type CallClient struct {
	Session   string `json:"session,omitempty"`
	Client    string `json:"client,omitempty"` // name/version
	Principal string `json:"principal,omitempty"`
	ID        string `json:"id"` // the id of the client, as JSON text
}

// A CallRoute says what a call uses.
type CallRoute struct {
	Method      string `json:"method"`
	Name        string `json:"name"` // of a tool or prompt, or URI, as in the request
	Backend     string `json:"backend,omitempty"`
	BackendName string `json:"backend_name,omitempty"` // name at the backend
}

// A CallResult is the end of a call.
type CallResult struct {
	BackendID    string  `json:"backend_id,omitempty"`
	Outcome      string  `json:"outcome"`
	IsError      bool    `json:"is_error"`
	Code         int     `json:"code,omitempty"`
	Reason       string  `json:"reason,omitempty"`
	Confirmation string  `json:"confirmation,omitempty"`
	Queued       float64 `json:"queued_ms"`
	Dur          float64 `json:"dur_ms"`
	BytesOut     int     `json:"bytes_out"`
}

// A CallList is the response of GET /api/v1/calls.
type CallList struct {
	InFlight []CallStatus `json:"in_flight"` // the oldest first
	Recent   []CallStatus `json:"recent"`    // the latest first
}

// A CallDetail is the response of GET /api/v1/calls/{id}.
type CallDetail struct {
	CallStatus
	// Logs are the lines of the log about its backend during the call, as far as they are in
	// memory.
	Logs []LogEntry `json:"logs"`
}

// A CallFilter selects calls. Zero fields select all.
type CallFilter struct {
	Backend, Name, Session, Client, Principal, Outcome string

	Slower time.Duration // calls that took, or are in flight for, at least this time
	Limit  int           // number of recent calls; 0 = 100
}

// Values returns the filter as the query of GET /api/v1/calls.
func (f *CallFilter) Values() url.Values {
	q := make(url.Values)
	for key, value := range map[string]string{
		"backend": f.Backend, "name": f.Name, "session": f.Session, "client": f.Client,
		"principal": f.Principal, "outcome": f.Outcome,
	} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if f.Slower > 0 {
		q.Set("slower", f.Slower.String())
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}
