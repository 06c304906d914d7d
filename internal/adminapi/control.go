package adminapi

// A BackendAction is what POST /api/v1/backends/{name}/{action} does to a backend.
type BackendAction string

// The actions.
const (
	Restart BackendAction = "restart"
	Stop    BackendAction = "stop"
	Start   BackendAction = "start"
)

// An ActionResult is the response to a BackendAction.
type ActionResult struct {
	Backend BackendStatus `json:"backend"` // afterwards
	Error   string        `json:"error,omitempty"`
}

// A ReloadResult is the response of POST /api/v1/reload.
type ReloadResult struct {
	File    string         `json:"file,omitempty"`
	Changes []ConfigChange `json:"changes"` // that were applied
	// Problems are the errors of the file, with line and hint. If there are any, nothing was
	// changed.
	Problems []string `json:"problems,omitempty"`
	// NotReady are the new and changed backends that are not ready, each with its state.
	NotReady []string `json:"not_ready,omitempty"`
}

// A ConfigChange is a difference between two configurations.
type ConfigChange struct {
	What   string `json:"what"` // a backend, or a key
	Change string `json:"change"`
	Detail string `json:"detail,omitempty"`
}

// StdioProtocol is the protocol for the header Upgrade of GET /api/v1/connect.
const StdioProtocol = "mcp-stdio"
