package main

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/auditlog"
)

// A backendLog is a log with lines about backends.
type backendLog interface {
	// lines returns the first lines about a backend, at most limit, from since until before until.
	// It reports whether there are more.
	lines(ctx context.Context, backend string, since, until time.Time, limit int) (
		lines []string, more bool, err error)
}

// logOfCall returns the log in a file or, if path is "", that of the gateway that made a call, if
// the gateway still runs; nil = neither.
func logOfCall(ctx context.Context, s *configSource, path, call string) backendLog {
	if path != "" {
		return logFilePath(path)
	}
	prefix, _, ok := strings.Cut(call, "-")
	running, _, err := findGateways(ctx, s)
	if !ok || err != nil {
		return nil
	}
	for _, g := range running {
		if g.ID == prefix { // see callid.Prefix
			return gatewayLog{g.Client()}
		}
	}
	return nil
}

// A gatewayLog is the log of a gateway that runs, as far as the gateway has it in memory.
type gatewayLog struct{ *adminapi.APIClient }

func (g gatewayLog) lines(
	ctx context.Context, backend string, since, until time.Time, limit int,
) (lines []string, more bool, err error) {
	all, err := g.Logs(ctx, url.Values{"backend": {backend},
		"since": {since.UTC().Format(time.RFC3339Nano)}, "limit": {strconv.Itoa(maxLogLines)}})
	for _, l := range all {
		if !l.Time.Before(until) {
			continue
		}
		if len(lines) == limit {
			return lines, true, err
		}
		text := l.Time.Local().Format("15:04:05.000") + " " + l.Level + " " + l.Message
		lines = append(lines, safeText(strings.TrimSpace(text+" "+l.Attrs), logLineWidth))
	}
	return lines, false, err
}

// A logFilePath is the path of a log in the format text or json.
type logFilePath string

var errEnough = errors.New("enough lines")

func (path logFilePath) lines(
	ctx context.Context, backend string, since, until time.Time, limit int,
) (lines []string, more bool, err error) {
	log, err := auditlog.OpenFiles([]string{string(path)})
	if err != nil {
		return nil, false, err
	}
	defer log.Close()
	err = log.EachLogLine(ctx, backend, since, until, func(r *auditlog.RecordLine) error {
		if len(lines) == limit {
			return errEnough
		}
		lines = append(lines, safeText(string(r.Line), logLineWidth))
		return nil
	})
	if err == errEnough {
		return lines, true, nil
	}
	return lines, false, err
}

// logLineWidth bounds the characters of a line of the log that are printed.
const logLineWidth = 1000
