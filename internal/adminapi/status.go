package adminapi

import "time"

// A GatewayStatus is the response of GET /api/v1/status.
type GatewayStatus struct {
	Gateway       GatewayInfo        `json:"gateway"`
	Configuration ConfigurationState `json:"configuration"`
	Backends      []BackendStatus    `json:"backends"` // in the order of the configuration
	Sessions      []SessionStatus    `json:"sessions"` // the oldest first
	Totals        CallTotals         `json:"totals"`
	Audit         AuditStatus        `json:"audit"`
}

// A GatewayInfo describes the process of a gateway.
type GatewayInfo struct {
	ID      string    `json:"id"` // the first part of its call ids
	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	Stdio   bool      `json:"stdio"`               // it serves stdin and stdout
	URL     string    `json:"url,omitempty"`       // of MCP over HTTP
	Admin   string    `json:"admin_url,omitempty"` // of the admin API over HTTP
}

// A ConfigurationState compares the configuration in force with its file.
type ConfigurationState struct {
	File string `json:"file,omitempty"` // absolute path; "" = no file, the embedded demo
	// Problem is the error of the last reload, which changed nothing; "" = none.
	Problem string `json:"problem,omitempty"`
	// NeedRestart are the keys whose changes apply when the gateway is restarted.
	NeedRestart []string `json:"need_restart,omitempty"`
	// Differs is true if the text of the file, or of a file that it refers to, has changed since
	// the file was read.
	Differs bool `json:"differs,omitempty"`
}

// A BackendStatus is the status of a backend.
type BackendStatus struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`
	Healthy bool      `json:"healthy"` // false = somebody should do something about it
	Since   time.Time `json:"since,omitzero"`
	Reason  string    `json:"reason,omitempty"` // reason for the state
	NextTry time.Time `json:"next_try,omitzero"`
	// Settled is true if the backend has listed its catalog, or failed to do so, at least once.
	Settled  bool   `json:"settled"`
	Restarts int    `json:"restarts"`
	Server   string `json:"server,omitempty"`   // name/version
	Revision string `json:"revision,omitempty"` // of MCP

	Lists ListCounts `json:"lists"`
	Calls CallTotals `json:"calls"`
	ConnectionStatus
	// LastError is the last failure of the backend itself, which may be over.
	LastError *TimedText `json:"last_error,omitempty"`
	// Instances are the connections of a backend with oauth.per: principal.
	Instances []InstanceStatus `json:"instances,omitempty"`
}

// A ConnectionStatus is the status of the connections to a backend.
type ConnectionStatus struct {
	Connections int   `json:"connections"` // that are ready
	Queued      int   `json:"queued"`      // calls that wait for a slot or a connection
	PIDs        []int `json:"pids,omitempty"`
}

// An InstanceStatus is the status of a backend for one principal.
type InstanceStatus struct {
	Principal string    `json:"principal"`
	State     string    `json:"state"`
	Since     time.Time `json:"since,omitzero"`
	Restarts  int       `json:"restarts"`
	Reason    string    `json:"reason,omitempty"`
	NextTry   time.Time `json:"next_try,omitzero"`
}

// ListCounts are the numbers of permitted entries of the lists of a backend.
type ListCounts struct {
	Tools     int `json:"tools"`
	Prompts   int `json:"prompts"`
	Resources int `json:"resources"`
	Templates int `json:"templates"`
}

// A TimedText is a text, such as an error, with its time.
type TimedText struct {
	Time time.Time `json:"time"`
	Text string    `json:"text"`
}

// An AuditStatus is the status of the audit records since the start of the gateway.
type AuditStatus struct {
	Written int64   `json:"written"`
	Lost    int64   `json:"lost"`   // records that could not be written
	Queued  int     `json:"queued"` // records that are not written yet
	Lag     float64 `json:"lag_ms"` // age of the oldest of them, in milliseconds
	// File is nil if the records are part of the log, or if there are none.
	File *AuditFileStatus `json:"file,omitempty"`
}

// An AuditFileStatus is the status of the audit file.
type AuditFileStatus struct {
	Path       string `json:"path"`
	Size       int64  `json:"size"`        // bytes
	Former     int    `json:"former"`      // files that were rotated and are kept
	FormerSize int64  `json:"former_size"` // bytes, as they are stored
	// Problem is what does not work, and since when; nil = everything works.
	Problem *TimedText `json:"problem,omitempty"`
}

// CallTotals count the calls since the start of the gateway.
type CallTotals struct {
	Calls    uint64 `json:"calls"` // ended
	Errors   uint64 `json:"errors"`
	InFlight int    `json:"in_flight"`
	// Outcomes has the ended calls by outcome, as in the audit log, without those that are 0.
	Outcomes map[string]uint64 `json:"outcomes,omitempty"`
	BytesIn  uint64            `json:"bytes_in"`
	BytesOut uint64            `json:"bytes_out"`
	// P50 and P99 are quantiles, in milliseconds, of the calls that were sent and that ended in the
	// last hour. They differ from the exact ones by at most 12 %. nil = there were none.
	P50       *float64   `json:"p50_ms,omitempty"`
	P99       *float64   `json:"p99_ms,omitempty"`
	LastError *TimedText `json:"last_error,omitempty"` // of a call
}

// A SessionStatus is a connected client.
type SessionStatus struct {
	ID        string `json:"id"`
	Stateless bool   `json:"stateless,omitempty"` // a client of 2026-07-28, which has no session
	Client    string `json:"client,omitempty"`    // name/version
	Principal string `json:"principal,omitempty"`
	// Profiles are the names of the profiles that the client has.
	Profiles    []string  `json:"profiles,omitempty"`
	Transport   string    `json:"transport"`
	Revision    string    `json:"revision,omitempty"` // of MCP
	Started     time.Time `json:"started,omitzero"`
	LastRequest time.Time `json:"last_request,omitzero"`
	InFlight    int       `json:"in_flight"`
}
