package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/config"
)

// statusTimeout limits the wait for the status of a gateway.
const statusTimeout = 2 * time.Second

func statusCommand(c *cli) *cobra.Command {
	asJSON, watch := false, false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the gateways that run: backends, calls and clients",
		Long: `status shows all gateways of this user that run: whom they serve, their
configuration, their backends and their clients. It asks the gateways, which need no HTTP
for that: each has a socket in its state directory.

CALLS, ERRORS and RESTARTS are counted since the start of the gateway, P50 and P99 are
quantiles of the calls of the last hour, and ACTIVE are the calls in flight.

The exit code is 0 if all backends are well, and 1 if one is not, if the audit file cannot be
written, if a gateway does not answer, or if no gateway runs.

With --watch it shows them again each time something changes, until it is interrupted. With
--json as well it prints one line of JSON for each change.

    gateway status
    gateway status --watch`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if watch {
				return watchStatus(cmd.Context(), c, asJSON)
			}
			all, dirs, err := findGateways(cmd.Context(), &c.source)
			if err != nil {
				return err
			}
			reports := statusOf(cmd.Context(), all)
			switch {
			case asJSON:
				err = printReportsJSON(c, reports, "  ")
			case len(reports) == 0:
				return errNoGateway(dirs)
			default:
				err = printReports(c.out, reports, time.Now())
			}
			if err == nil && !allWell(reports) {
				err = errReported
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show the status again when it changes")
	return cmd
}

// A gatewayReport is the status of a gateway, or the reason why it is not known.
type gatewayReport struct {
	ID string `json:"id"`
	*adminapi.GatewayStatus
	Error string `json:"error,omitempty"`
}

// isWell reports whether the gateway answers, its audit file works, and all its backends are well.
func (r *gatewayReport) isWell() bool {
	if r.Error != "" || r.Audit.File != nil && r.Audit.File.Problem != nil {
		return false
	}
	return !slices.ContainsFunc(r.Backends,
		func(b adminapi.BackendStatus) bool { return !b.Healthy })
}

// allWell reports whether there are gateways, and all of them are well.
func allWell(all []gatewayReport) bool {
	return len(all) > 0 &&
		!slices.ContainsFunc(all, func(r gatewayReport) bool { return !r.isWell() })
}

// registryDirs returns the state directories in which gateways of this user may be registered: the
// one of the flag --state, or else that of the configuration and the default.
func registryDirs(ctx context.Context, s *configSource) (dirs []string, err error) {
	if s.state == config.PathNone {
		return nil, usageError{errors.New("--state none: a gateway without a state directory " +
			"cannot be asked"), "name the state directory of the gateway"}
	}
	if s.state != "" {
		return []string{absolutePath(s.state)}, nil
	}
	o := s.options(ctx, s.path, false, false)
	o.RequiredKeys, o.Sources = []string{"state"}, nil
	loaded, err := config.Load(o)
	if err != nil {
		fmt.Fprintf(s.err, "gateway: the configuration cannot be read, so its state directory is "+
			"not known: %s\n", oneLine(err.Error()))
	} else if loaded.Config.StateDir != "" {
		dirs = append(dirs, absolutePath(loaded.Config.StateDir))
	}
	dir := absolutePath(config.DefaultStateDir(os.LookupEnv))
	if dir != "" && !slices.Contains(dirs, dir) {
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// findGateways returns the gateways that are registered, and the state directories that it has
// looked into. The gateways may have ended.
func findGateways(ctx context.Context, s *configSource) (
	all []adminapi.Registered, dirs []string, err error,
) {
	dirs, err = registryDirs(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	all, err = gatewaysIn(dirs)
	return all, dirs, err
}

// gatewaysIn returns the gateways that are registered in these state directories.
func gatewaysIn(dirs []string) (all []adminapi.Registered, err error) {
	for _, dir := range dirs {
		some, err := adminapi.FindGateways(dir)
		if err != nil {
			return nil, fmt.Errorf("cannot read the list of gateways: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// errNoGateway returns the error for a user without a running gateway.
func errNoGateway(dirs []string) error {
	hint := "an MCP client starts it, or gateway serve does"
	if len(dirs) > 0 {
		for i, dir := range dirs {
			dirs[i] = filepath.Clean(dir)
		}
		hint += "; if it runs with another state directory than " + strings.Join(dirs, " and ") +
			", name that with --state"
	}
	return hintedError{errors.New("no gateway is running"), hint}
}

// statusOf asks all gateways at the same time, and returns the reports of those that have not
// ended, the oldest first.
func statusOf(ctx context.Context, all []adminapi.Registered) (reports []gatewayReport) {
	results := make([]gatewayReport, len(all))
	var asking sync.WaitGroup
	for i, g := range all {
		asking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()
			status, err := g.Client().Status(ctx)
			switch {
			case err == nil:
				results[i] = gatewayReport{ID: g.ID, GatewayStatus: status}
			case errors.Is(err, adminapi.ErrEnded):
			case errors.Is(err, context.DeadlineExceeded):
				results[i] = gatewayReport{ID: g.ID, Error: "does not answer"}
			default:
				results[i] = gatewayReport{ID: g.ID, Error: err.Error()}
			}
		})
	}
	asking.Wait()
	for _, r := range results {
		if r.ID != "" {
			reports = append(reports, r)
		}
	}
	sortReports(reports)
	return reports
}

// sortReports sorts reports by the start of the gateway, the oldest first.
func sortReports(all []gatewayReport) {
	slices.SortFunc(all, func(a, b gatewayReport) int {
		return cmp.Or(startOf(a).Compare(startOf(b)), cmp.Compare(a.ID, b.ID))
	})
}

func startOf(r gatewayReport) time.Time {
	if r.GatewayStatus == nil {
		return time.Time{}
	}
	return r.Gateway.Started
}

// printReportsJSON prints the reports as JSON, on one line or indented.
func printReportsJSON(c *cli, reports []gatewayReport, indent string) error {
	if reports == nil {
		reports = []gatewayReport{}
	}
	enc := json.NewEncoder(c.out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	return enc.Encode(struct {
		Gateways []gatewayReport `json:"gateways"`
	}{reports})
}

// whom returns whom a gateway serves: an address, stdin and stdout, or both.
func whom(s *adminapi.GatewayStatus) string {
	var all []string
	if s.Gateway.Stdio {
		text := "stdin and stdout"
		if len(s.Sessions) > 0 && s.Gateway.URL == "" {
			text += " of " + cmp.Or(s.Sessions[0].Client, "a client")
		}
		all = append(all, text)
	}
	if s.Gateway.URL != "" {
		all = append(all, s.Gateway.URL)
	}
	return strings.Join(all, ", and ")
}
