// Package config turns what the user wrote into plain structs: it finds the
// file, reads it, lays environment variables and flags over it, fills in the
// defaults and checks all of it.
//
// It refuses to guess. An unknown key, a duplicate key, a number in quotes, an
// unset variable: each is an error with file, line and key, and all of them
// are reported at once. It runs nothing, dials nothing and looks at no path
// but the files it reads. It never puts the value of a secret into an error, a
// warning or a note.
//
//	Load ─ find ─ parse (bytes → yaml.Node, YAML or JSON)
//	     ├ reader     walks the nodes along the types below: keys, kinds, ${VAR}
//	     ├ overrides  GATEWAY_* and flags, converted by the same types
//	     ├ koanf      merges the layers and decodes strictly
//	     └ checker    finds what types cannot say
package config

import "time"

// Config is a loaded configuration. Whoever gets one may read it, from any
// number of goroutines, and must not change it.
type Config struct {
	// State says where the last known catalogs are kept, as the user wrote it:
	// "" for the default place, "none" for nowhere. Use StateDir.
	State string `koanf:"state"`
	// StateDir is the directory State stands for; "" = keep nothing.
	StateDir string `koanf:"-"`

	// Listen is where HTTP is served, host:port with a port of digits, 0 = any
	// that is free; "" = nowhere. Unless it is Loopback there are Auth.Tokens.
	Listen string `koanf:"listen"`
	Auth   Auth   `koanf:"auth"`
	TLS    TLS    `koanf:"tls"`
	// Origins are those of browsers that are let in beside loopback's and our
	// own, just as they are sent: https://host or https://host:8443.
	Origins []string `koanf:"origins"`
	// Hosts are the names that a Host header may have beside localhost's while
	// Listen is Loopback: in lowercase, without port or brackets.
	Hosts []string `koanf:"hosts"`

	// Instructions takes the place of what the backends tell models about themselves: "" = nothing
	// does, NoInstructions = models are told nothing.
	Instructions string `koanf:"instructions"`

	Catalog Catalog `koanf:"catalog"`
	Log     Log     `koanf:"log"`
	Audit   Audit   `koanf:"audit"`
	Limits  Limits  `koanf:"limits"`

	// Backends stand in the order of the file. It decides who keeps a bare name.
	Backends []Backend `koanf:"backends"`

	// Expanded holds the secrets that ${VAR} brought into Backends and Auth, and
	// those of inherit_env, for Secrets.
	Expanded []string `koanf:"-"`
}

// Catalog says how the tools of all backends become one list.
type Catalog struct {
	Prefix    string `koanf:"prefix"`     // collision, always or never
	Separator string `koanf:"separator"`  // between backend and tool; letters, digits, _ and -
	NameLimit int    `koanf:"name_limit"` // characters of the longest exposed name, 8 to 128
	// Wait is how long a first tools/list may wait for backends that are still
	// starting; 0 = not at all.
	Wait time.Duration `koanf:"wait"`
}

// Log says what goes to stderr, and how.
type Log struct {
	Level  string `koanf:"level"`  // debug, info, warn or error
	Format string `koanf:"format"` // text or json
	Stderr string `koanf:"stderr"` // info, debug or off: at which level backends' lines on stderr are logged
}

// PathNone, in the place of a path, has nothing be kept there.
const PathNone = "none"

// NoInstructions, as instructions, stands for an empty text; "" in a file becomes it.
const NoInstructions = "none"

// Audit says where the record of each call goes, and how much it tells.
type Audit struct {
	File     string `koanf:"file"`     // "" = into the log; PathNone = there is none; otherwise a path, ~ already expanded
	Payloads string `koanf:"payloads"` // none, arguments or all
}

// Limits bounds what clients and backends may ask of us.
type Limits struct {
	Message  int64 `koanf:"message"`   // bytes of one message, either way; at least 1024
	InFlight int   `koanf:"in_flight"` // calls of one session at a time; at least 1
	Page     int64 `koanf:"page"`      // bytes of one page of a list; 1024 to Message

	Sessions    int           `koanf:"sessions"`     // of clients at one time, and requests without one; half of it under one of several tokens; at least 1
	SessionIdle time.Duration `koanf:"session_idle"` // an HTTP session without request or stream ends after it; at least 1s
	Events      int64         `koanf:"events"`       // bytes kept per session so that a broken stream can be resumed; 0 = none
	Outbox      int64         `koanf:"outbox"`       // bytes that may wait for all HTTP clients together; at least Message

	// StartParallel is how many processes are being started at one time; at least 1.
	StartParallel int `koanf:"start_parallel"`
	// Drain is how long calls in flight may take when the gateway is told to end by a signal; 0 = none.
	Drain time.Duration `koanf:"drain"`
}

// Backend is one MCP server behind the gateway. If it is Enabled, exactly one
// of Command, URL and Embedded is set.
type Backend struct {
	Name string `koanf:"name"` // [a-z0-9][a-z0-9_-]*, unique

	Command    string            `koanf:"command"`     // program to run, looked up in PATH
	Args       []string          `koanf:"args"`        // a leading ~/ already expanded
	Env        map[string]string `koanf:"env"`         // added to a minimal environment, not to ours
	InheritEnv []string          `koanf:"inherit_env"` // names of variables taken over from ours
	// Cwd is where Command runs: ~ already expanded, perhaps relative to where
	// the gateway was started, "" = there. It may not exist.
	Cwd string `koanf:"cwd"`

	URL       string            `koanf:"url"`       // http or https, with a host
	Transport string            `koanf:"transport"` // how to speak to URL: auto, http or sse; without one auto
	Headers   map[string]string `koanf:"headers"`   // Host is the host of the request; none has the name of one of the protocol's
	TLS       ClientTLS         `koanf:"tls"`       // if URL is https

	Embedded string `koanf:"embedded"` // a server inside this process: demo

	StartTimeout time.Duration `koanf:"start_timeout"` // for start and handshake; 0 = none
	CallTimeout  time.Duration `koanf:"call_timeout"`  // for one call, anew with each progress; 0 = none

	Lazy     bool          `koanf:"lazy"`      // if its catalog is known it is started by the first call
	IdleStop time.Duration `koanf:"idle_stop"` // a Command is stopped after so long without a call; 0 = never

	MaxInFlight int           `koanf:"max_in_flight"` // calls of all sessions that are at it at one time; at least 1
	QueueWait   time.Duration `koanf:"queue_wait"`    // how long one more waits for a place; 0 = not at all

	Sharing string `koanf:"sharing"` // auto, shared (one connection for all clients) or session (one for each)
	// Generation says which revisions are spoken with it: auto (it is asked), legacy
	// (those that begin with initialize) or modern (2026-07-28 and later). A
	// modern one has no Transport sse.
	Generation string `koanf:"era"`

	Tools     Filter `koanf:"tools"`     // by names
	Prompts   Filter `koanf:"prompts"`   // by names
	Resources Filter `koanf:"resources"` // by URIs, and templates of them

	// Instructions takes the place of the backend's own, as [Config.Instructions] does.
	Instructions string `koanf:"instructions"`

	// Misconfigured says which variables the backend lacks; "" = none. With a text the backend
	// cannot be started, and only Name and Enabled count.
	Misconfigured string `koanf:"-"`
	// PermissionUnknown says that Misconfigured concerns Enabled, Tools, Prompts or Resources.
	PermissionUnknown bool `koanf:"-" json:",omitzero"`

	Enabled bool `koanf:"enabled"` // false = never started; variables it needs may be unset, their fields empty
}

// Default returns the configuration of a gateway that was told nothing. It has
// no backends.
func Default() Config {
	return Config{
		Catalog: Catalog{Prefix: "collision", Separator: "__", NameLimit: 50, Wait: 3 * time.Second},
		Log:     Log{Level: "info", Format: "text", Stderr: "debug"},
		Audit:   Audit{Payloads: "none"},
		Limits: Limits{
			Message: 64 << 20, InFlight: 1024, Page: 4 << 20,
			Sessions: 10_000, SessionIdle: time.Hour, Events: 1 << 20, Outbox: 256 << 20,
			StartParallel: 8, Drain: 5 * time.Second,
		},
	}
}
