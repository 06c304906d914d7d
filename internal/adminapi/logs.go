package adminapi

// A LogList is the response of GET /api/v1/logs.
type LogList struct {
	Lines []LogEntry `json:"lines"` // the oldest first
}
