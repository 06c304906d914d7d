package reload

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mcpgateway/internal/config"
)

// A reload must not read a certificate from a pipe again. In an earlier version the first reload,
// immediately after the start, blocked forever, so that the gateway could not be stopped.
func TestCertificateFromPipeIsReadOnce(t *testing.T) {
	dir := t.TempDir()
	pipe := func(name string) string {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	was := config.TLS{Cert: pipe("cert"), Key: pipe("key")}
	next := was
	r := &Reloader{current: &config.Config{TLS: was}, Options: Options{
		Target: tokensOnly{}, Server: noServer{}, Certificate: new(Certificates),
	}}
	r.Certificate.Store(new(certificate))
	r.Load = func(context.Context, string, bool) (*config.Loaded, error) {
		return &config.Loaded{Config: &config.Config{TLS: next}}, nil
	}
	if _, _, pair, err := r.read(t.Context(), true); err != nil || !r.Certificate.isCurrent(pair) {
		t.Errorf("%v", err)
	}
	next.Cert = pipe("other")
	if _, _, _, err := r.read(t.Context(), true); err == nil {
		t.Error("another pipe is taken for a certificate")
	}
}

// The certificate is read again although the configuration is unchanged. The configuration is
// loaded again, which may run commands, only if it has changed, if it was refused, or on request.
func TestUnchangedConfigurationIsNotLoaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "g.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded := &config.Loaded{Config: new(config.Config), Source: path}
	loads, unchanged := 0, true
	r := &Reloader{current: loaded.Config, lastRead: loaded, source: path, Options: Options{
		Target: tokensOnly{}, Server: noServer{}, Certificate: new(Certificates),
		Unchanged: func(*config.Loaded) bool { return unchanged },
		Load: func(context.Context, string, bool) (*config.Loaded, error) {
			loads++
			return loaded, nil
		},
	}}
	for _, c := range []struct {
		again, refused, unchanged bool
		loads                     int
	}{
		{false, false, true, 0}, {true, false, true, 1}, {false, true, true, 1},
		{false, false, false, 1},
	} {
		loads, unchanged, r.refused = 0, c.unchanged, c.refused
		if next, _, _, err := r.read(t.Context(), c.again); next != loaded || err != nil ||
			loads != c.loads {
			t.Errorf("%+v: %d loads, %v", c, loads, err)
		}
	}
}

// tokensOnly is a Target that returns the configured tokens and does nothing else.
type tokensOnly struct{ Target }

func (tokensOnly) Tokens(_ *config.Loaded, c *config.Config) ([]config.Token, error) {
	return c.Auth.Tokens, nil
}

// A pipe without a writer is an error at the start.
func TestCertificateFromSilentPipe(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this test takes seconds")
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "cert")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := LoadCertificate(&config.Loaded{Config: new(config.Config)},
		config.TLS{Cert: path, Key: path})
	if err == nil ||
		!strings.Contains(err.Error(), "tls.cert: "+path+
			": is a pipe, and did not end within 10s") {
		t.Error(err)
	}
	if took := time.Since(began); took > time.Minute {
		t.Error(took)
	}
	w, err := os.OpenFile(path, os.O_WRONLY, 0) // ends the abandoned read, which has the pipe open
	if err != nil {
		t.Fatal(err)
	}
	w.Close()

	path += "2" // no earlier read has this pipe open
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(path, []byte("text"), 0) }()
	if text, err := config.ReadNamed(path); string(text) != "text" || err != nil {
		t.Errorf("of a pipe that is written: %q, %v", text, err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// noServer is an HTTPServer that does nothing.
type noServer struct{}

func (noServer) UpdateAccess(*config.Config, []config.Token) {}
