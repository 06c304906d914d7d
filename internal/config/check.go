package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpgateway/internal/config/internal/expand"
	"mcpgateway/internal/config/internal/node"
	"mcpgateway/internal/lazy"
	"mcpgateway/internal/secrets"
)

const (
	maxMessage = 1 << 30 // bytes of the longest supported message
	maxEvents  = 1 << 30 // bytes of the events that a session may keep
)

// checker validates requirements that types cannot express. Its errors contain each location as the
// user wrote it.
type checker struct {
	file      string
	locations map[string]location
	reported  map[string]bool // paths for which an error has been reported
	errs      Errors

	fromVariables map[string]bool // paths of values that contain variables
	misconfigured misconfigurations
}

// fail reports a problem with the value at path, or with its absence. If the value contains
// variables, the problem makes its backend misconfigured, if possible, and is not an error.
func (c *checker) fail(path, problem, hint string) {
	e := c.errorAt(path)
	e.Problem, e.Hint = problem, hint
	if c.fromVariables[path] {
		_, key, _ := strings.Cut(path, "].")
		if c.misconfigured.add(path, key+": "+problem+": check the variables in it") {
			return
		}
	}
	c.errs = append(c.errs, e)
}

// errorAt returns an error about the value at path, with the location of the value or, if the value
// is absent, of the nearest value that contains it. The caller sets Problem.
func (c *checker) errorAt(path string) *Error {
	for at := path; ; {
		if p, ok := c.locations[at]; ok {
			e := &Error{File: c.file, Line: p.line, Key: p.key}
			if p.line == 0 { // a variable or a flag
				e.File = ""
			}
			return e
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			return &Error{File: c.file, Key: path}
		}
		at = at[:i]
	}
}

// not calls [node.Not] with the text of the value at path, for an error about this value.
func (c *checker) not(path string) string { return node.Not(c.locations[path].text) }

// isGiven reports whether there is a value at path.
func (c *checker) isGiven(path string) bool {
	_, ok := c.locations[path]
	return ok
}

func (c *checker) check(cfg *Config) {
	oneOf(c, "catalog.prefix", cfg.Catalog.Prefix, "collision", "always", "never")
	oneOf(c, "log.level", cfg.Log.Level, "debug", "info", "warn", "error")
	oneOf(c, "log.format", cfg.Log.Format, "text", "json")
	oneOf(c, "log.stderr", cfg.Log.Stderr, "info", "debug", "off")
	c.audit(cfg.Audit)
	if !separator().MatchString(cfg.Catalog.Separator) {
		c.fail("catalog.separator",
			"must be letters, digits, _ and - only"+c.not("catalog.separator"), "")
	}
	if n := cfg.Catalog.NameLimit; n < 8 || n > 128 {
		c.fail("catalog.name_limit", fmt.Sprintf("must be 8 to 128, not %d", n), "")
	}
	c.http(cfg)
	c.limits(cfg.Limits)
	c.otel(cfg.OTel)
	c.admin(cfg)
	named := map[string]int{}
	for i := range cfg.Backends {
		c.backend(&cfg.Backends[i], i, named)
	}
	c.profiles(cfg)
}

func (c *checker) audit(a Audit) {
	oneOf(c, "audit.payloads", a.Payloads, "none", "arguments", "all")
	oneOf(c, "audit.compress", a.Compress, "none", "gzip", "zstd")
	files := "audit.keep" // the short form
	if at := files + ".files"; c.isGiven(at) {
		files = at
	}
	for _, b := range []struct {
		key  string
		kept bool
		must string
	}{
		{"audit.max_size", a.MaxSize >= 64<<10, "at least 64KiB"},
		{"audit.max_age", a.MaxAge == 0 || a.MaxAge >= time.Second, "at least 1s, or 0 for no limit"},
		{files, a.Keep.Files >= 1 && a.Keep.Files <= maxKeepFiles, "1 to 1000"},
		{"audit.keep.age", a.Keep.Age == 0 || a.Keep.Age >= time.Second,
			"at least 1s, or 0 for no limit"},
		{"audit.keep.size", a.Keep.Size == 0 || a.Keep.Size >= a.MaxSize ||
			c.reported["audit.max_size"], "at least audit.max_size, or 0 for no limit"},
	} {
		if !b.kept && !c.reported[b.key] {
			c.fail(b.key, "must be "+b.must+c.not(b.key), "")
		}
	}
}

// limits checks the limits. If limits.message could not be parsed or is too small, it does not
// report limits.page and limits.outbox, whose bounds depend on limits.message.
func (c *checker) limits(l Limits) {
	messageWrong := c.reported["limits.message"] || l.Message < 1024
	for _, b := range []struct {
		key  string
		kept bool
		must string
	}{
		{"message", l.Message >= 1024, "at least 1KiB"},
		{"message", l.Message <= maxMessage, "at most 1GiB"},
		{"in_flight", l.InFlight >= 1, "at least 1"},
		{"page", l.Page >= 1024 || messageWrong, "at least 1KiB"},
		{"page", l.Page <= l.Message || messageWrong, "at most limits.message"},
		{"sessions", l.Sessions >= 1, "at least 1"},
		{"session_idle", l.SessionIdle >= time.Second, "at least 1s"},
		{"outbox", l.Outbox >= l.Message || messageWrong, "at least limits.message"},
		{"start_parallel", l.StartParallel >= 1, "at least 1"},
		{"events", l.Events >= 1024 && l.Events <= maxEvents, "from 1KiB to 1GiB"},
	} {
		if path := "limits." + b.key; !b.kept {
			c.fail(path, "must be "+b.must+c.not(path), "")
		}
	}
}

// rate checks the rate at a path.
func (c *checker) rate(r Rate, at string) {
	limit := at
	if c.isGiven(at + ".limit") {
		limit += ".limit"
	}
	const none = "leave rate out for no limit"
	bounds := fmt.Sprintf("must be 1 to %d", maxRateRequests)
	requests, _, ok := r.Limit.parse()
	switch {
	case !c.isGiven(at) || c.reported[at] || c.reported[at+".limit"]:
	case r.Limit == "" && limit == at:
		c.fail(at, "requires limit", "write it like 600/m, or { limit: 600/m, burst: 50 }")
	case !ok:
		c.fail(limit, "must be a number of requests per second, minute or hour, like 10/s, 600/m "+
			"or 1000/h"+c.not(limit), none)
	case requests < 1 || requests > maxRateRequests:
		c.fail(limit, bounds+" requests"+c.not(limit), none)
	}
	if burst := at + ".burst"; c.isGiven(burst) && !c.reported[burst] &&
		(r.Burst < 1 || r.Burst > maxRateRequests) {
		c.fail(burst, bounds+c.not(burst), "leave it out for the number in limit")
	}
}

// literalSecrets returns one warning for each enabled backend whose URL or headers contain secrets
// that are written into the file. It skips values for which reported contains an error.
func (c *checker) literalSecrets(cfg *Config, reported Errors) (all []string) {
	isReported := func(path string) bool {
		key := c.errorAt(path).Key
		return slices.ContainsFunc(reported, func(e *Error) bool { return e.Key == key })
	}
	for i, b := range cfg.Backends {
		if !b.Enabled || b.URL == "" {
			continue
		}
		at := fmt.Sprintf("backends[%d]", i)
		var keys []string
		if !c.fromVariables[at+".url"] && !isReported(at+".url") && secrets.Find("", b.URL) != nil {
			keys = append(keys, "url")
		}
		for _, name := range slices.Sorted(maps.Keys(b.Headers)) {
			path := at + ".headers." + name
			if value := secrets.AfterScheme(b.Headers[name]); !c.fromVariables[path] &&
				!isReported(path) && !isTrivial(value) && secrets.IsSecret(name, value) {
				keys = append(keys, "headers."+name)
			}
		}
		if len(keys) > 0 {
			e := c.errorAt(at + "." + keys[0])
			e.Problem = "a secret is written into the file: write ${keyring:NAME} after " +
				"gateway secret set NAME, or put it into a variable and write ${VARIABLE}"
			e.Backend, e.Key = b.Name, strings.Join(keys, ", ")
			all = append(all, e.Error())
		}
	}
	return all
}

// warnings returns warnings about a valid configuration.
func (c *checker) warnings(cfg *Config) (all []string) {
	if cfg.Listen != "" && !cfg.Loopback() && cfg.TLS == (TLS{}) {
		e := c.errorAt("listen")
		e.Problem = "there is no tls: tokens and all other data are sent unencrypted, unless a proxy in front of the gateway encrypts them"
		all = append(all, e.Error())
	}
	all = append(all, c.expiredTokens(cfg.Auth.Tokens, time.Now())...)
	all = append(all, c.similarNames(cfg)...)
	all = append(all, c.loginsOfNobody(cfg)...)
	if !slices.ContainsFunc(cfg.Backends, func(b Backend) bool { return b.Enabled }) {
		all = append(all, c.file+": no backend is enabled: there is nothing to serve")
	}
	return all
}

// loginsOfNobody returns warnings about backends at which each client has a login of its own, if
// clients have no identity.
func (c *checker) loginsOfNobody(cfg *Config) (all []string) {
	for i, b := range cfg.Backends {
		if b.OAuth.Per == PerPrincipal && b.Enabled && !cfg.Auth.RequiresToken() {
			e := c.errorAt(fmt.Sprintf("backends[%d].oauth.per", i))
			e.Problem = "auth has no tokens and no oauth: all clients use the login of the gateway itself"
			all = append(all, e.Error())
		}
	}
	return all
}

// similarNames returns warnings about enabled backends whose names some clients treat as equal.
func (c *checker) similarNames(cfg *Config) (all []string) {
	seen := map[string]string{}
	for i, b := range cfg.Backends {
		name := strings.ReplaceAll(b.Name, "-", "_")
		if other, ok := seen[name]; ok && b.Enabled {
			e := c.errorAt(fmt.Sprintf("backends[%d].name", i))
			e.Problem = fmt.Sprintf(
				"%s and %s differ in - and _ only, which some clients do not tell apart: rename one of them",
				other, b.Name)
			all = append(all, e.Error())
		}
		if b.Enabled {
			seen[name] = b.Name
		}
	}
	return all
}

var separator = lazy.Regexp(`^[A-Za-z0-9_-]+$`)

// oneOf reports a value that is not one of the allowed values.
func oneOf[T ~string](c *checker, path string, value T, allowed ...T) {
	if slices.Contains(allowed, value) {
		return
	}
	var names []string
	for _, one := range allowed {
		names = append(names, string(one))
	}
	last := len(names) - 1
	text := strings.Join(names[:last], ", ") + " or " + names[last]
	c.fail(path, "must be "+text+c.not(path), "")
}

// resolvePaths expands ~ in paths and sets StateDir. It reports a ~ if the home directory is
// unknown, and the token auto if there is no state directory.
func (c *checker) resolvePaths(cfg *Config, env func(string) (string, bool)) {
	expandPath := func(value, at string) string {
		expanded, ok := expand.Tilde(value, env)
		if !ok {
			c.fail(at, "~ is not known: HOME is not set", "")
		}
		return expanded
	}
	cfg.Audit.File = expandPath(cfg.Audit.File, "audit.file")
	cfg.TLS.Cert = expandPath(cfg.TLS.Cert, "tls.cert")
	cfg.TLS.Key = expandPath(cfg.TLS.Key, "tls.key")
	for i := range cfg.Backends {
		b, at := &cfg.Backends[i], fmt.Sprintf("backends[%d]", i)
		b.Command = expandPath(b.Command, at+".command")
		b.Cwd = expandPath(b.Cwd, at+".cwd")
		for j, arg := range b.Args {
			if strings.HasPrefix(arg, "~/") {
				b.Args[j] = expandPath(arg, fmt.Sprintf("%s.args[%d]", at, j))
			}
		}
		b.TLS.CA = expandPath(b.TLS.CA, at+".tls.ca")
		b.TLS.Cert = expandPath(b.TLS.Cert, at+".tls.cert")
		b.TLS.Key = expandPath(b.TLS.Key, at+".tls.key")
	}
	switch cfg.State {
	case PathNone:
	case "":
		cfg.StateDir = DefaultStateDir(env)
	default:
		cfg.StateDir = expandPath(cfg.State, "state")
	}
	if cfg.Admin.Listen != "" && cfg.StateDir == "" {
		c.fail("admin.listen",
			"needs a state directory for the admin token, and there is no state directory",
			"set state to a directory")
	}
	if i := cfg.Auth.AutoToken(); i >= 0 && cfg.StateDir == "" && cfg.Listen != "" {
		c.fail(c.tokenPath(i),
			"is auto, which needs a state directory for the token, and there is no state directory",
			"set state to a directory, or write a token: openssl rand -hex 32 makes a good one")
	}
}

// resolveEnvFiles makes the paths of env_file absolute, and adds the variables of the files to the
// environments of the programs. It reports the file that GATEWAY_ENV_FILE names if it cannot be
// used.
func (c *checker) resolveEnvFiles(cfg *Config, sources *sourceReader) {
	if sources.envFilePath != "" && sources.topFile.err != nil {
		c.fail("env_file", sources.topFile.err.Error(), envFileHint)
	}
	absolute := func(written string) string {
		if path, err := sources.path(written); written != "" && err == nil {
			return path
		}
		return written
	}
	cfg.EnvFile = absolute(cfg.EnvFile)
	for i := range cfg.Backends {
		b := &cfg.Backends[i]
		b.EnvFile = absolute(b.EnvFile)
		if b.Enabled {
			sources.addToProcess(b)
		}
	}
}

// StateDirOf returns the StateDir that a value of state refers to in this environment. For
// [PathNone] it returns DefaultStateDir.
func StateDirOf(state string, env func(string) (string, bool)) string {
	if state == "" || state == PathNone {
		return DefaultStateDir(env)
	}
	expanded, _ := expand.Tilde(state, env)
	return expanded
}

// DefaultStateDir returns the StateDir, in this environment, of a configuration without State; "" =
// the environment has neither XDG_STATE_HOME nor a home directory.
func DefaultStateDir(env func(string) (string, bool)) string {
	dir := baseDir(env, "XDG_STATE_HOME", ".local", "state")
	if dir == "" {
		return ""
	}
	return filepath.Join(dir, "mcp-gateway")
}
