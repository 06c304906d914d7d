package adminapi

// A ConfigurationList is the response of GET /api/v1/configuration: the configuration in force.
type ConfigurationList struct {
	State    ConfigurationState `json:"state"`
	Settings []ConfigSetting    `json:"settings"` // without secrets
	// Differences are the changes in the file that are not in force, for example because they need
	// a restart.
	Differences []ConfigChange `json:"differences"`
}

// A ConfigSetting is a key and its value, as text.
type ConfigSetting struct {
	Backend string `json:"backend,omitempty"` // "" = a key outside of backends
	Key     string `json:"key"`
	Value   string `json:"value"`
}
