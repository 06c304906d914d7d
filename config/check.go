package config

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxMessage is the longest message that can be dealt with, in bytes.
const maxMessage = 1 << 30

// checker finds what types cannot say. It names each place as the user wrote it.
type checker struct {
	file   string
	places map[string]place
	broken map[string]bool // backends for which there is an error already
	errs   Errors
}

// fail reports a problem with the value at path, or where that would stand.
func (c *checker) fail(path, problem, hint string) {
	for at := path; ; {
		if p, ok := c.places[at]; ok {
			e := &Error{File: c.file, Line: p.line, Key: p.key, Problem: problem, Hint: hint}
			if p.line == 0 { // a variable or a flag
				e.File = ""
			}
			c.errs = append(c.errs, e)
			return
		}
		i := strings.LastIndexAny(at, ".[")
		if i < 0 {
			c.errs = append(c.errs, &Error{File: c.file, Key: path, Problem: problem, Hint: hint})
			return
		}
		at = at[:i]
	}
}

// not says what the user wrote at path.
func (c *checker) not(path string) string { return not(c.places[path].text) }

func (c *checker) check(cfg *Config) {
	c.oneOf("catalog.prefix", cfg.Catalog.Prefix, "collision", "always", "never")
	c.oneOf("log.level", cfg.Log.Level, "debug", "info", "warn", "error")
	c.oneOf("log.format", cfg.Log.Format, "text", "json")
	c.oneOf("audit.payloads", cfg.Audit.Payloads, "none", "arguments", "all")
	if !separator.MatchString(cfg.Catalog.Separator) {
		c.fail("catalog.separator", "must be letters, digits, _ and - only"+c.not("catalog.separator"), "")
	}
	if n := cfg.Catalog.NameLimit; n < 8 || n > 128 {
		c.fail("catalog.name_limit", fmt.Sprintf("must be 8 to 128, not %d", n), "")
	}
	if cfg.Limits.Message < 1024 {
		c.fail("limits.message", "must be at least 1KiB"+c.not("limits.message"), "")
	}
	if cfg.Limits.Message > maxMessage {
		c.fail("limits.message", "must be at most 1GiB"+c.not("limits.message"), "")
	}
	if cfg.Limits.InFlight < 1 {
		c.fail("limits.in_flight", "must be at least 1", "")
	}
	named := map[string]int{}
	for i := range cfg.Backends {
		c.backend(&cfg.Backends[i], i, named)
	}
}

var separator = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func (c *checker) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		last := len(allowed) - 1
		c.fail(path, "must be "+strings.Join(allowed[:last], ", ")+" or "+allowed[last]+c.not(path), "")
	}
}

// paths expands ~ and resolves where the state is kept.
func (c *checker) paths(cfg *Config, env func(string) (string, bool)) {
	expand := func(value, at string) string {
		expanded, ok := expandHome(value, env)
		if !ok {
			c.fail(at, "~ is not known: HOME is not set", "")
		}
		return expanded
	}
	cfg.Audit.File = expand(cfg.Audit.File, "audit.file")
	for i := range cfg.Backends {
		b, at := &cfg.Backends[i], fmt.Sprintf("backends[%d]", i)
		b.Command = expand(b.Command, at+".command")
		b.Cwd = expand(b.Cwd, at+".cwd")
	}
	switch cfg.State {
	case "none":
	case "":
		if dir := baseDir(env, "XDG_STATE_HOME", ".local", "state"); dir != "" {
			cfg.StateDir = filepath.Join(dir, "mcp-gateway")
		}
	default:
		cfg.StateDir = expand(cfg.State, "state")
	}
}
