package main

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"mcpgateway/internal/config"
	"mcpgateway/internal/keyring"
	"mcpgateway/internal/text"
)

// A configSource finds and loads the configuration of this process. Its flags have precedence over
// the file.
type configSource struct {
	stdio                                           // used to ask the user to approve a file
	path, logLevel, logFormat, state, listen string // flags
	profile                                  string // flag: profile of the client; "" = none

	openKeyring sync.Once
	keyring     *keyring.Secrets // see sources
}

// addProfileFlag adds the flag --profile to a command.
func (s *configSource) addProfileFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.profile, "profile", "",
		"show the client only what the profile `NAME` permits")
	completeFlag(cmd, "profile", s.profileNames)
}

// flag returns the flag for the same file as a part of a command line, with a space before it; "" =
// the command line has no such flag.
func (s *configSource) flag() string {
	if s.path == "" {
		return ""
	}
	return " -c " + text.ShellWord(s.path)
}

// load loads the configuration. If gateway.yaml in the working directory is not approved, it asks
// the user, or returns an error if stdin or stderr is not a terminal.
func (s *configSource) load(ctx context.Context) (*config.Loaded, error) {
	return loadFrom(s.options(ctx, s.path, false, true))
}

// reload loads the file at path, or searches for one if path is "". It never asks the user. local
// is true if the file was found in the working directory and must be approved.
func (s *configSource) reload(
	ctx context.Context, path string, local bool,
) (*config.Loaded, error) {
	return loadFrom(s.options(ctx, path, local, false))
}

// isUnchanged reports whether reload would read the same text as l.
func (s *configSource) isUnchanged(l *config.Loaded) bool {
	return l.Unchanged(s.options(context.Background(), l.Source, l.Local, false))
}

// options returns the options to load the file at path. Commands in the file are killed when ctx is
// done.
func (s *configSource) options(
	ctx context.Context, path string, local, ask bool,
) config.Options {
	return config.Options{
		Path: path, Local: local, Flags: s.flagValues(), VariableNames: variableNames(),
		Approve: approver{s.stdio, s.state, ask}.approve,
		Sources: s.sources(ctx),
	}
}

// loadFrom loads a configuration and makes the path of the state directory absolute. It adds a
// warning for each path in the configuration that does not exist or cannot be accessed. It returns
// an error if audit.file is also another file of the gateway.
func loadFrom(o config.Options) (*config.Loaded, error) {
	l, err := config.Load(o)
	if err != nil {
		return nil, err
	}
	l.Config.StateDir = absolutePath(l.Config.StateDir)
	if errs := auditFileConflicts(l); len(errs) > 0 {
		return nil, errs
	}
	l.Warnings = slices.Concat(l.Warnings, missingPaths(l), blockWithoutLock(l))
	return l, nil
}

// variableNames returns the names of the environment variables that are not empty.
func variableNames() (names []string) {
	for _, v := range os.Environ() {
		if name, value, _ := strings.Cut(v, "="); value != "" {
			names = append(names, name)
		}
	}
	return names
}

// flagValues returns the values of the flags that are set and not empty, by configuration key.
func (s *configSource) flagValues() map[string]string {
	set := make(map[string]string)
	for key, value := range map[string]string{
		"log.level": s.logLevel, "log.format": s.logFormat, "state": s.state, "listen": s.listen,
	} {
		if value != "" {
			set[key] = value
		}
	}
	return set
}

// flagKeys returns the configuration keys that flags set, sorted.
func (s *configSource) flagKeys() []string { return slices.Sorted(maps.Keys(s.flagValues())) }

// quietLog is the configOverride of commands that print results. Only errors are logged, unless
// --log-level or GATEWAY_LOG_LEVEL sets the level. At the levels error and warn, audit records are
// written only if audit.file is set.
func (s *configSource) quietLog(cfg *config.Config) {
	if s.logLevel == "" && os.Getenv("GATEWAY_LOG_LEVEL") == "" {
		cfg.Log.Level = "error"
	}
	if cfg.Log.Level == "error" || cfg.Log.Level == "warn" {
		cfg.Audit.File = cmp.Or(cfg.Audit.File, config.PathNone)
	}
}
