package reload

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"mcpgateway/internal/config"
)

// steps is a Target and an HTTPServer that record the order of the calls.
type steps struct {
	Target
	all []string
}

func (s *steps) add(step string) { s.all = append(s.all, step) }

func (s *steps) Tokens(*config.Loaded, *config.Config) ([]config.Token, error) {
	return nil, nil
}

func (s *steps) SetSecrets([]string) { s.add("SetSecrets") }

func (s *steps) RestrictProfiles(*config.Config) { s.add("RestrictProfiles") }

func (s *steps) SetAudit(*config.Config)    { s.add("SetAudit") }
func (s *steps) SetLogLevel(*config.Config) { s.add("SetLogLevel") }

func (s *steps) UpdateAccess(*config.Config, []config.Token) { s.add("UpdateAccess") }

func (s *steps) ApplyBackends(context.Context, *config.Config, func([]string)) error {
	s.add("ApplyBackends")
	return nil
}

// New secrets are masked before anything can log them. Profiles permit nothing more before the
// tokens that select them are replaced, and a revoked token does not wait for new backends.
func TestOrderOfAReload(t *testing.T) {
	s := new(steps)
	current, next := new(config.Config), new(config.Config)
	r := &Reloader{
		Options: Options{Target: s, Server: s}, log: slog.New(slog.DiscardHandler),
		watcher: newFileWatcher(slog.New(slog.DiscardHandler)), current: current,
	}
	r.apply(t.Context(), &config.Loaded{Config: next}, config.Diff(current, next), nil)
	if want := []string{"SetSecrets", "RestrictProfiles", "UpdateAccess", "SetLogLevel", "SetAudit",
		"ApplyBackends"}; !slices.Equal(s.all, want) {
		t.Errorf("the order is %q, want %q", s.all, want)
	}
}
