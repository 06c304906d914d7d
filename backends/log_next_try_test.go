package backends

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/transport"
)

// The log record of a failure contains the time until the next try, rounded.
func TestLogContainsNextTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		one := config.Backend{Name: "a", Command: "a", Enabled: true}
		s := New(Options{
			Backends: []config.Backend{one}, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Dial: func(config.Backend) (transport.Conn, error) { return nil, errors.New("no") },
		})
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan struct{})
		go func() {
			defer close(over)
			_ = s.Run(ctx, nil)
		}()
		s.Start()
		time.Sleep(time.Minute)
		cancel()
		<-over
		want := regexp.MustCompile(`failed to start; will retry" backend=a err=no next=2[0-9]0ms\n`)
		if !want.MatchString(log.String()) {
			t.Errorf("logged %s", log.String())
		}
		if want := regexp.MustCompile(
			`calls rejected between its starts" backend=a err=no next=3[0-9](\.[0-9])?s\n`); !want.MatchString(
			log.String()) {
			t.Errorf("logged %s", log.String())
		}
	})
}
