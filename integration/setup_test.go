//go:build unix

package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// waitTimeout is the limit for events that should come soon, on a busy machine.
const waitTimeout = 30 * time.Second

// A backend is one entry of the configuration's list.
type backend struct {
	Name       string            `yaml:"name"`
	Command    string            `yaml:"command,omitempty"`
	Args       []string          `yaml:"args,omitempty"`
	Env        map[string]string `yaml:"env,omitempty"`
	URL        string            `yaml:"url,omitempty"`
	Headers    map[string]string `yaml:"headers,omitempty"`
	Embedded   string            `yaml:"embedded,omitempty"`
	Tools      map[string]any    `yaml:"tools,omitempty"`
	InheritEnv []string          `yaml:"inherit_env,omitempty"`
	Sharing    string            `yaml:"sharing,omitempty"`
	Transport  string            `yaml:"transport,omitempty"`
	Generation string            `yaml:"era,omitempty"`
	OAuth      map[string]any    `yaml:"oauth,omitempty"`
}

// A setup is the environment of one gateway: its directory, configuration, audit file and state,
// and the marker of its processes.
type setup struct {
	t      testing.TB
	dir    string
	config string
	audit  string
	marker envMarker
}

var markerCount atomic.Int64

// newSetup writes a configuration with these backends. At the end of the test no process of the
// gateway may be left. more has further top-level keys, e.g. catalog; it may be nil.
func newSetup(t testing.TB, more map[string]any, backends ...backend) *setup {
	t.Helper()
	dir := t.TempDir()
	searchAtEnd(t, dir)
	s := &setup{
		t:      t,
		dir:    dir,
		config: filepath.Join(dir, "gateway.yaml"),
		audit:  filepath.Join(dir, "audit.jsonl"),
		marker: envMarker(filepath.Base(workDir) + "-" + itoa(markerCount.Add(1))),
	}
	for i := range backends {
		if backends[i].Command == "" {
			continue
		}
		env := map[string]string{markerEnv: string(s.marker)}
		for k, v := range backends[i].Env {
			env[k] = v
		}
		backends[i].Env = env
	}
	doc := map[string]any{
		"state":    filepath.Join(dir, "state"),
		"audit":    map[string]any{"file": s.audit, "payloads": "all"},
		"log":      map[string]any{"level": "debug"},
		"backends": backends,
	}
	for k, v := range more {
		doc[k] = v
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.config, text, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.marker.requireNoProcesses(t, 2*time.Second) })
	return s
}

// env returns the environment of the gateway and the clients. SECRET_X must not be passed on.
func (s *setup) env(more ...string) []string {
	home := filepath.Join(s.dir, "home")
	if err := os.MkdirAll(home, 0o755); err != nil {
		s.t.Fatal(err)
	}
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "TMPDIR=" + s.dir,
		"SECRET_X=" + registerSecret(s.t, "SECRET_X", "must-not-be-inherited"), markerEnv + "=" + string(s.marker),
	}, more...)
}

// start runs the gateway on the configuration, with a raw client at its stdin and stdout.
func (s *setup) start(args ...string) *rawClient {
	s.t.Helper()
	cmd := exec.Command(gateway(s.t), append([]string{"-c", s.config}, args...)...)
	cmd.Env = s.env()
	cmd.Dir = s.dir
	return startRaw(s.t, cmd)
}

// An auditRecord is one line of audit.file with msg=call.
type auditRecord struct {
	Call                           string
	Session, Client, Tool, Backend string
	Outcome                        string
	ID                             json.RawMessage
	Code                           json.RawMessage
	BackendID                      json.RawMessage `json:"backend_id"`
	BackendTool                    string          `json:"backend_tool"`
	DurMS                          *float64        `json:"dur_ms"`
	BytesIn                        *int64          `json:"bytes_in"`
	BytesOut                       *int64          `json:"bytes_out"`
	line                           string
}

var callID = regexp.MustCompile(`^[0-9a-z]{8}-[0-9a-z]+$`)

// records reads the audit file. Each line must be JSON, and the record of each call complete.
func (s *setup) records() []auditRecord {
	s.t.Helper()
	text, err := os.ReadFile(s.audit)
	if err != nil {
		s.t.Errorf("audit: %v", err)
		return nil
	}
	var calls []auditRecord
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		line := lines.Text()
		var msg struct{ Msg string }
		if err := json.Unmarshal([]byte(line), &msg); err != nil {
			s.t.Errorf("audit: %v in line %q", err, line)
			continue
		}
		if msg.Msg != "call" {
			continue
		}
		r := auditRecord{line: line}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			s.t.Errorf("audit: %v in line %q", err, line)
		}
		calls = append(calls, r)
	}
	return calls
}

// checkComplete fails the test if a key that the record of every forwarded call has is missing.
func (r auditRecord) checkComplete(t testing.TB) {
	t.Helper()
	missing := map[string]bool{
		"call": !callID.MatchString(r.Call), "session": r.Session == "", "client": r.Client == "", "id": len(r.ID) == 0,
		"backend_id": empty(r.BackendID),
		"tool":       r.Tool == "", "backend": r.Backend == "", "backend_tool": r.BackendTool == "",
		"outcome": r.Outcome == "",
		"dur_ms":  r.DurMS == nil, "bytes_in": r.BytesIn == nil, "bytes_out": r.BytesOut == nil,
	}
	for key, yes := range missing {
		if yes {
			t.Errorf("audit record without %s: %s", key, r.line)
		}
	}
}

func empty(raw json.RawMessage) bool {
	return len(raw) == 0 || string(raw) == `""` || string(raw) == "null"
}

// matchesID reports whether a record's id is this raw id: unchanged or, because an id may be any
// JSON, as a string of it.
func matchesID(recorded, raw json.RawMessage) bool {
	if bytes.Equal(recorded, raw) {
		return true
	}
	var text string
	return json.Unmarshal(recorded, &text) == nil && text == string(raw)
}

func itoa(n int64) string {
	b, _ := json.Marshal(n)
	return string(b)
}
