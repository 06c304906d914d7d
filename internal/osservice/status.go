package osservice

import "time"

// A ServiceState is the state of an installed service.
type ServiceState struct {
	Name    string     `json:"name"`
	Running bool       `json:"running"`
	State   string     `json:"state"` // in the words of the service manager
	Since   *time.Time `json:"since,omitempty"`
	PID     int        `json:"pid,omitempty"`
	Enabled bool       `json:"enabled"`          // it starts by itself
	Text    string     `json:"text,omitempty"`   // text that the gateway reports to the service manager
	Result  string     `json:"result,omitempty"` // reason why the service has failed
	File    string     `json:"file,omitempty"`   // description of the service
}
