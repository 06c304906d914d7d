package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The log contains the reason for the end of serve, and a hint if there was no client.
func TestServeLogsReasonOfEnd(t *testing.T) {
	for name, c := range map[string]struct {
		input string // by the client
		stop  error  // nil = stdin ends
		want  string
	}{
		"no client": {"", nil, `msg="stdin ended without a message: stopping" text="to run as a service use --listen"`},
		"a client": {`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n", nil,
			`msg="stdin ended: stopping"`},
		"a signal": {"", signalCause(os.Interrupt), `msg="signal received: stopping" text=SIGINT`},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "gateway.yaml")
			if err := os.WriteFile(file,
				[]byte("state: none\nbackends: [{ name: demo, embedded: demo }]\n"),
				0o600); err != nil {
				t.Fatal(err)
			}
			in, client, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			defer client.Close()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if _, err := client.WriteString(c.input); err != nil {
				t.Fatal(err)
			}
			if c.stop != nil {
				cancel(c.stop)
			} else {
				client.Close()
			}
			log := logOf(t, ctx, in, "serve", "-c", file)
			if !slices.ContainsFunc(log,
				func(line string) bool { return strings.HasSuffix(line, c.want) }) {
				t.Errorf("logged %q, want %s", log, c.want)
			}
			stopping := slices.DeleteFunc(
				log, func(line string) bool { return !strings.Contains(line, "stopping") },
			)
			if len(stopping) != 1 {
				t.Errorf("logged more than once: %q", stopping)
			}
		})
	}
}

// logOf runs a command line until it ends, and returns the lines of its log.
func logOf(t *testing.T, ctx context.Context, in *os.File, args ...string) []string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, args, stdio{in, null, file}) }()
	select {
	case code := <-ended:
		if code != exitOK {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}
