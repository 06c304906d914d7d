package backends

import (
	"log/slog"
	"strings"
	"testing"

	"mcpgateway/internal/config"
)

// The status of a backend, which check prints, contains the reason why a container may remain.
func TestStatusContainerWarning_F_PROC_1(t *testing.T) {
	for name, c := range map[string]struct {
		line, state, want string
	}{
		"F-PROC-1 no state":     {"docker run -i --rm image", "", "state is none"},
		"F-PROC-1 compose":      {"docker compose run s", "/state", "cannot stop"},
		"F-PROC-1 a shell":      {"sh -c docker run image", "/state", "cannot stop"},
		"F-PROC-1 known":        {"docker run -i --rm image", "/state", ""},
		"F-PROC-1 no container": {"npx server", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			words := strings.Fields(c.line)
			s := New(Options{StateDir: c.state, Log: slog.New(slog.DiscardHandler),
				Backends: []config.Backend{
					{Name: "b", Command: words[0], Args: words[1:], Enabled: true},
				}})
			got := s.Status()[0].ContainerWarning
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
