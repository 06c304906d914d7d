package config

// A Profile is a named view of the backends: a client with this profile can list, call, read and
// complete only what the profile permits. The filters of the backends apply as well.
type Profile struct {
	// Backends are the names of the backends; nil = all.
	Backends  []string     `koanf:"backends"`
	Tools     ProfileTools `koanf:"tools"`     // by the backend's own name
	Prompts   Filter       `koanf:"prompts"`   // by the backend's own name
	Resources Filter       `koanf:"resources"` // by URI or URI template
	// Rate limits the requests of all clients with this profile together.
	Rate Rate `koanf:"rate" json:",omitzero"`
}

// ProfileTools selects the tools of a Profile.
type ProfileTools struct {
	Allow []string `koanf:"allow"` // see [Filter]
	Deny  []string `koanf:"deny"`
	// ReadOnly leaves out the tools that do not have the annotation readOnlyHint: true. The
	// annotation is a claim of the server.
	ReadOnly bool `koanf:"read_only"`
}

// Filter returns the filter by name.
func (t ProfileTools) Filter() Filter { return Filter{Allow: t.Allow, Deny: t.Deny} }
