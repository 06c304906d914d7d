// Package config loads the configuration: it finds the file, parses it, applies environment
// variables and flags on top, fills in the defaults and validates the result.
//
// The package does not guess. An unknown key, a duplicate key or a number in quotes is an error
// with file, line and key. All errors of a file that can be parsed are reported at once. Errors,
// warnings and notes never contain the value of a secret.
//
// The package opens no connection. It starts no process itself: Load, and only Load, reads the
// values of ${file:…}, ${keyring:…} and ${command:…} and the files of env_file, for the keys and
// the enabled backends that the caller needs. It calls Options.Sources for keyrings and commands;
// without Options.Sources it reads none of these. It does so after the file is approved. The
// functions Validate, Describe and Loaded.Unchanged run no command. To detect a gateway among
// mcpServers, the package also reads the build information of programs with the name of the
// gateway.
//
//	Load ─ find ─ parse (bytes → yaml.Node, YAML or JSON)
//	     ├ koanf      merges the layers and decodes strictly:
//	     │    ├ defaultLayer
//	     │    ├ fileParser the file; converts the nodes to the types below: keys, kinds, ${VAR}
//	     │    │    └ sourceReader  env_file, and references that are not variables
//	     │    └ overrides  GATEWAY_* and flags, converted by the same types
//	     └ checker    validates what types cannot express
package config

import (
	"net"
	"time"

	"mcpgateway/internal/weburl"
)

// Config is a loaded configuration. It is read-only, and safe for concurrent use.
type Config struct {
	// State is the directory of the last known catalogs, as written in the configuration: "" = the
	// default directory, "none" = no directory. Programs use StateDir instead.
	State string `koanf:"state"`
	// StateDir is the directory that State refers to; "" = none: nothing is stored, except
	// approvals of configuration files (gateway trust), which have their own directory.
	StateDir string `koanf:"-"`

	// Listen is the address of the HTTP server, host:port with a numeric port, 0 = any free port;
	// "" = no HTTP server. If the address is not a Loopback address, clients need a token.
	Listen string `koanf:"listen"`
	Auth   Auth   `koanf:"auth"`
	TLS    TLS    `koanf:"tls"`
	// Origins are the browser origins that are accepted in addition to the gateway's own origin,
	// exactly as browsers send them: scheme://host or scheme://host:port, in lowercase and without
	// the default port. Loopback origins are also accepted if Listen is a Loopback address and
	// clients need a token.
	Origins []string `koanf:"origins"`
	// Hosts are the host names accepted in the Host header in addition to localhost and loopback
	// addresses, while Listen is a Loopback address: in lowercase, without port or brackets.
	Hosts []string `koanf:"hosts"`

	// Instructions replaces the instructions of the backends for models: "" = no replacement,
	// NoInstructions = models get no instructions.
	Instructions string `koanf:"instructions"`

	Catalog Catalog `koanf:"catalog"`
	Log     Log     `koanf:"log"`
	Audit   Audit   `koanf:"audit"`
	OTel    OTel    `koanf:"otel"`
	Admin   Admin   `koanf:"admin"`
	Limits  Limits  `koanf:"limits"`

	// Profiles are the named views of the backends.
	Profiles map[string]Profile `koanf:"profiles" json:",omitempty"`

	// Backends are in the order of the file. The order decides which backend keeps an unprefixed
	// name.
	Backends []Backend `koanf:"backends"`

	// EnvFile is the path of a file with variables for ${VAR}, absolute; "" = none.
	EnvFile string `koanf:"env_file"`

	// Expanded contains the secrets that ${VAR} inserted into Backends and Auth, those of
	// inherit_env, and all values of other references. Secrets uses it.
	Expanded []string `koanf:"-"`
}

// Catalog configures how the tools of all backends become one list.
type Catalog struct {
	Prefix    string `koanf:"prefix"`     // collision, always or never
	Separator string `koanf:"separator"`  // between backend and tool; letters, digits, _ and -
	NameLimit int    `koanf:"name_limit"` // characters of the longest exposed name, 8 to 128
	// Wait is the time for which a first tools/list waits for backends that are still starting; 0 =
	// no wait.
	Wait time.Duration `koanf:"wait"`
}

// Log configures the log on stderr.
type Log struct {
	Level  string `koanf:"level"`  // debug, info, warn or error
	Format string `koanf:"format"` // text or json
	Stderr string `koanf:"stderr"` // info, debug or off: log level of the stderr of backends
}

// PathNone in place of a path means that there is no such file or directory.
const PathNone = "none"

// NoInstructions is the value of instructions for an empty text; "" in a file becomes
// NoInstructions.
const NoInstructions = "none"

// Audit configures the audit record of each call.
type Audit struct {
	// File is the path of the audit file, ~ already expanded; "" = records go into the log,
	// PathNone = no records.
	File     string `koanf:"file"`
	Payloads string `koanf:"payloads"` // none, arguments or all

	MaxSize  int64         `koanf:"max_size"` // bytes at which File is rotated; at least 64 KiB
	MaxAge   time.Duration `koanf:"max_age"`  // age of the first record; 0 or at least 1s
	Keep     AuditKeep     `koanf:"keep"`
	Compress string        `koanf:"compress"` // of former files: none, gzip or zstd
	Chain    bool          `koanf:"chain"`    // each record has the hash of the record before
}

const (
	defaultKeepFiles = 5
	maxKeepFiles     = 1000 // of AuditKeep.Files
)

// AuditKeep limits the former audit files. In the file it is a mapping with these keys, or only the
// number of files.
type AuditKeep struct {
	// Files is the number of files, 1 to 1000. The default is 5, or 1000 if Age or Size is set.
	Files int           `koanf:"files"`
	Age   time.Duration `koanf:"age"`  // of the newest record in a file; 0 = no limit
	Size  int64         `koanf:"size"` // bytes of all files, as stored; 0 = no limit
}

// Limits bounds the resources that clients and backends can use.
type Limits struct {
	Message  int64 `koanf:"message"`   // bytes of one message, in either direction; at least 1024
	InFlight int   `koanf:"in_flight"` // concurrent calls of one session; at least 1
	Page     int64 `koanf:"page"`      // bytes of one page of a list; 1024 to Message

	// Sessions is the maximum number of concurrent HTTP sessions, and also of concurrent stateless
	// HTTP requests, which are counted separately; at least 1. If there are several tokens, each
	// token gets at most half of each number.
	Sessions int `koanf:"sessions"`
	// SessionIdle is the time after which an HTTP session without request or stream ends; at
	// least 1s.
	SessionIdle time.Duration `koanf:"session_idle"`
	// Events is the number of bytes kept per session to resume a broken stream; at least 1024.
	Events int64 `koanf:"events"`
	// Outbox is the number of unread bytes for all HTTP clients together; at least Message.
	Outbox int64 `koanf:"outbox"`

	// StartParallel is the number of processes that may be starting at the same time; at least 1.
	StartParallel int `koanf:"start_parallel"`
	// Drain is the time for which calls in flight may continue after a termination signal; 0 =
	// none.
	Drain time.Duration `koanf:"drain"`
}

// Backend is one MCP server behind the gateway. If it is Enabled, exactly one of Command, URL and
// Embedded is set.
type Backend struct {
	Name string `koanf:"name"` // [a-z0-9][a-z0-9_-]*, unique

	Command    string            `koanf:"command"`     // program to run, looked up in PATH
	Args       []string          `koanf:"args"`        // a leading ~/ is already expanded
	Env        map[string]string `koanf:"env"`         // added to a minimal environment
	InheritEnv []string          `koanf:"inherit_env"` // variables of the gateway to copy
	// Cwd is the working directory of Command, ~ already expanded; "" = the gateway's working
	// directory. A relative path is relative to the gateway's working directory. The directory
	// might not exist.
	Cwd string `koanf:"cwd"`

	// EnvFile is the path of a file with variables, absolute; "" = none. Its variables are used for
	// ${VAR} in the entry, and are in Env if Env does not set them otherwise.
	EnvFile string `koanf:"env_file"`

	URL       string    `koanf:"url"`       // http or https, with a host
	Transport Transport `koanf:"transport"` // TransportAuto if URL is not set
	// Headers are sent with each request. The header Host replaces the host of the request.
	// Protocol headers are not allowed.
	Headers map[string]string `koanf:"headers"`
	TLS     ClientTLS         `koanf:"tls"`                    // TLS of an https URL
	OAuth   OAuth             `koanf:"oauth" json:",omitzero"` // login at the server behind URL

	Embedded string `koanf:"embedded"` // server inside this process: demo

	StartTimeout time.Duration `koanf:"start_timeout"` // limit of start and handshake; 0 = none
	CallTimeout  time.Duration `koanf:"call_timeout"`  // limit since start or progress; 0 = none

	Lazy     bool          `koanf:"lazy"`      // started by the first call if its catalog is known
	IdleStop time.Duration `koanf:"idle_stop"` // idle time before a stop; 0 = never

	MaxInFlight int           `koanf:"max_in_flight"` // concurrent calls; at least 1
	QueueWait   time.Duration `koanf:"queue_wait"`    // wait of further calls; 0 = none
	// Rate limits the requests of all clients together.
	Rate Rate `koanf:"rate" json:",omitzero"`

	Sharing Sharing `koanf:"sharing"`
	// Generation is the protocol generation used with the backend. GenerationModern is not combined
	// with TransportSSE.
	Generation GenerationSetting `koanf:"era"`

	Tools     ToolSettings `koanf:"tools"`
	Prompts   Filter       `koanf:"prompts"`   // filter of prompts, by name
	Resources Filter       `koanf:"resources"` // filter of resources, by URI or URI template

	// Instructions replaces the backend's instructions, like [Config.Instructions].
	Instructions string `koanf:"instructions"`

	// Misconfigured describes the problems with the backend's variables; "" = none. A
	// misconfigured backend cannot be started, and only its Name and Enabled are valid.
	Misconfigured string `koanf:"-"`
	// PermissionUnknown is true if Misconfigured concerns Enabled, Tools, Prompts or Resources.
	PermissionUnknown bool `koanf:"-" json:",omitzero"`

	// Enabled is false for a backend that is never started. Its fields may be empty because
	// variables are not set.
	Enabled bool `koanf:"enabled"`
}

// A Transport is the transport of a backend with a URL.
type Transport string

const (
	TransportAuto Transport = "auto" // TransportHTTP, or TransportSSE if the server has only that
	TransportHTTP Transport = "http" // Streamable HTTP
	TransportSSE  Transport = "sse"  // HTTP+SSE of revision 2024-11-05
)

// OAuth configures how the gateway gets access to a backend with a URL. The zero value is complete:
// it is enough for a server whose authorization server registers clients itself. It is not combined
// with a header Authorization.
type OAuth struct {
	// ClientID and ClientSecret are a client that is registered at the authorization server; "" =
	// none, or a client without a secret.
	ClientID     string     `koanf:"client_id"`
	ClientSecret string     `koanf:"client_secret"`
	Grant        OAuthGrant `koanf:"grant"` // "" = GrantAuthorizationCode
	// Scopes are requested instead of those that the server names; nil = those.
	Scopes []string `koanf:"scopes"`
	// ClientMetadataURL is the https URL of a client ID metadata document; "" = none.
	ClientMetadataURL string `koanf:"client_metadata_url"`
	// RedirectPort is the port of the redirect URI on this machine; 0 = any free port.
	RedirectPort int `koanf:"redirect_port"`
	// AllowPrivate permits metadata, and logins, at private addresses and over http.
	AllowPrivate bool     `koanf:"allow_private"`
	Per          OAuthPer `koanf:"per"` // "" = PerGateway
}

// IsZero reports whether no key is set.
func (o OAuth) IsZero() bool {
	return o.ClientID == "" && o.ClientSecret == "" && o.Grant == "" && o.Scopes == nil &&
		o.ClientMetadataURL == "" && o.RedirectPort == 0 && !o.AllowPrivate && o.Per == ""
}

// An OAuthGrant is the way in which the gateway gets access tokens.
type OAuthGrant string

const (
	GrantAuthorizationCode OAuthGrant = "authorization_code" // somebody logs in with a browser
	GrantClientCredentials OAuthGrant = "client_credentials" // the client itself has access
)

// An OAuthPer determines who uses a login.
type OAuthPer string

const (
	PerGateway   OAuthPer = "gateway"   // all clients use one login
	PerPrincipal OAuthPer = "principal" // each principal has its own login, connections and lists
)

// A Sharing determines which clients share a connection to a backend.
type Sharing string

const (
	SharingAuto    Sharing = "auto"    // session for a backend with a URL, else shared
	SharingShared  Sharing = "shared"  // one connection for all clients
	SharingSession Sharing = "session" // a connection for each client
)

// A GenerationSetting is the protocol generation that is used with a backend.
type GenerationSetting string

const (
	GenerationAuto   GenerationSetting = "auto"   // probed
	GenerationLegacy GenerationSetting = "legacy" // revisions with initialize
	GenerationModern GenerationSetting = "modern" // 2026-07-28 and later
)

// Default returns the default configuration, which has no backends.
func Default() Config {
	return Config{
		Catalog: Catalog{Prefix: "collision", Separator: "__", NameLimit: 50,
			Wait: 3 * time.Second},
		Log: Log{Level: "info", Format: "text", Stderr: "debug"},
		Audit: Audit{Payloads: "none", MaxSize: 100 << 20, Compress: "none",
			Keep: AuditKeep{Files: defaultKeepFiles}},
		Limits: Limits{
			Message: 64 << 20, InFlight: 1024, Page: 4 << 20,
			Sessions: 10_000, SessionIdle: time.Hour, Events: 1 << 20, Outbox: 256 << 20,
			StartParallel: 8, Drain: 5 * time.Second,
		},
	}
}

// TLS contains the paths of the certificate and key of the HTTP server, ~ already expanded. Either
// both are set or none. The files might not exist.
type TLS struct {
	Cert string `koanf:"cert"`
	Key  string `koanf:"key"`
}

// ClientTLS contains the paths of files for https connections to a backend, ~ already expanded. The
// files might not exist.
type ClientTLS struct {
	CA         string `koanf:"ca"`          // trusted authorities, in place of the system's
	Cert       string `koanf:"cert"`        // client certificate
	Key        string `koanf:"key"`         // key of Cert; both or none are set
	ServerName string `koanf:"server_name"` // name in the certificate; "" = host of the URL
}

// Loopback reports whether Listen is an address that only this machine can reach: localhost,
// 127.0.0.0/8 or ::1. It does not resolve names. A Listen without a host means all addresses and is
// not loopback. An empty Listen is not loopback either.
func (c *Config) Loopback() bool { return isLoopbackAddress(c.Listen) }

func isLoopbackAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && weburl.IsLoopback(host)
}
