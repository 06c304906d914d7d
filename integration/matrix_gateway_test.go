//go:build unix

package integration

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// unsupported lists the features that an SDK lacks in a generation, without a gateway, with the
// reasons. The test tries each of them directly as well, so that the list stays true.
type unsupported map[string]string

// unsupportedByClient is checked at a server that supports everything.
var unsupportedByClient = map[string]unsupported{
	"mcp-go 1.2, " +
		legacyRevision: {"cancel": "it disconnects without a notification, which is not a cancellation in a legacy revision"},
}

// unsupportedByServer is checked with the go-sdk's client, which supports everything.
var unsupportedByServer = map[string]unsupported{}

// TestMatrix connects each client through a gateway to each server, of either generation, and
// uses all features. If the client and the server each support a feature within their own
// generation, it must work through the gateway, whatever their generations. The table contains
// ok, – if one of the two lacks the feature, or FAIL.
func TestMatrix(t *testing.T) {
	servers := matrixServers(t)
	began := time.Now()
	clientDo, serverDo := matrixSupport(t, servers)
	t.Logf("direct: %v", time.Since(began))

	gateways := matrixGateways(t, servers)

	var table bytes.Buffer
	failed := 0
	for _, c := range matrixClients {
		began := time.Now()
		runs := make([]matrixRun, 0, len(servers))
		for _, s := range servers {
			can := slices.DeleteFunc(slices.Clone(features), func(feature string) bool {
				return !clientDo[c.title()][feature] || !serverDo[s.title()][feature]
			})
			e := matrixRun{Cell: s.title(), Features: can, N: "gw-" + c.tag(), Notes: s.notes}
			if gw := gateways[s.title()]; c.stdio {
				e.Command, e.Env = []string{gateway(t), "-c", gw.stdio.config}, gw.stdio.env()
			} else {
				e.URL = gw.url
			}
			runs = append(runs, e)
		}
		outcomes := outcomesByCell(t, runs, c.run(t, c.revision, runs))
		fmt.Fprintf(&table, "%-36s %s\n", c.title(), strings.Join(features, " "))
		for i, s := range servers {
			fmt.Fprintf(&table, "  %-34s", s.title())
			for _, feature := range features {
				mark := "–"
				if slices.Contains(runs[i].Features, feature) {
					if mark = "ok"; outcomes[s.title()][feature] != "" {
						mark = "FAIL"
						failed++
						t.Errorf("%s at %s: %s: %s", c.title(), s.title(), feature,
							outcomes[s.title()][feature])
					}
				}
				fmt.Fprintf(&table, " %-*s", len(feature), mark)
			}
			table.WriteByte('\n')
		}
		t.Logf("%s: %v", c.title(), time.Since(began))
	}
	fmt.Fprintf(&table, "matrix: %d clients, %d servers, %d failures\n", len(matrixClients),
		len(servers), failed)
	report(t, table.Bytes())
}

// A matrixGateway is the gateway in front of one server: the URL of a process that serves HTTP,
// and the configuration for a process that a client starts itself.
type matrixGateway struct {
	url   string
	stdio *setup
}

func matrixGateways(t *testing.T, servers []matrixServer) map[string]matrixGateway {
	all := make(map[string]matrixGateway)
	var mu sync.Mutex
	var starting sync.WaitGroup
	more := map[string]any{"catalog": map[string]any{"wait": "30s"}}
	for _, s := range servers {
		httpSetup, stdioSetup := newSetup(t, more, s.backend), newSetup(t, more, s.backend)
		starting.Go(func() {
			url := httpSetup.serveURL()
			awaitReady(t, url)
			mu.Lock()
			defer mu.Unlock()
			all[s.title()] = matrixGateway{url, stdioSetup}
		})
	}
	starting.Wait()
	return all
}

func (c matrixClient) title() string {
	if c.stdio {
		return c.name + " over stdio, " + c.revision
	}
	return c.name + ", " + c.revision
}

func (c matrixClient) tag() string {
	return strings.NewReplacer(" ", "", ".", "", ",", "-").Replace(c.title())
}
func (s matrixServer) title() string { return s.name + ", " + s.revision }

// matrixSupport determines which features each client and each server supports without a
// gateway.
func matrixSupport(
	t *testing.T, servers []matrixServer,
) (clientDo, serverDo map[string]map[string]bool) {
	clientDo, serverDo = make(map[string]map[string]bool), make(map[string]map[string]bool)
	var mu sync.Mutex
	var running sync.WaitGroup
	// Each feature on a connection of its own, so that they do not interfere.
	each := func(e matrixRun) (list []matrixRun) {
		for _, feature := range features {
			one := e
			one.Features, one.N = []string{feature}, e.N+"-"+feature
			list = append(list, one)
		}
		return list
	}
	record := func(
		do map[string]map[string]bool, name string, cannot unsupported, outcomes map[string]string,
	) {
		mu.Lock()
		defer mu.Unlock()
		do[name] = make(map[string]bool)
		for _, feature := range features {
			can := outcomes[feature] == ""
			do[name][feature] = can
			switch reason, listed := cannot[feature]; {
			case can && listed:
				t.Errorf("%s supports %s directly, although it is listed as unsupported: %s", name,
					feature, reason)
			case !can && !listed:
				t.Errorf("%s does not support %s directly: %s", name, feature, outcomes[feature])
			}
		}
	}
	env := newSetup(t, nil).env()
	at := func(s matrixServer, n string) matrixRun {
		e := matrixRun{Cell: s.title(), URL: s.backend.URL, N: n, Notes: s.notes,
			httpSSE: s.backend.Transport == "sse"}
		if s.backend.Command != "" {
			e.Command, e.Env = append([]string{s.backend.Command}, s.backend.Args...),
				slices.Clone(env)
			for k, v := range s.backend.Env {
				e.Env = append(e.Env, k+"="+v)
			}
		}
		return e
	}
	running.Go(func() {
		for _, c := range matrixClients {
			name := "go-sdk HTTP"
			if c.stdio {
				name = "go-sdk stdio"
			}
			i := slices.IndexFunc(servers,
				func(s matrixServer) bool { return s.name == name && s.revision == c.revision })
			runs := each(at(servers[i], "client-"+c.tag()))
			outcomes := outcomesByCell(t, runs, c.run(t, c.revision, runs))
			record(clientDo, c.title(), unsupportedByClient[c.title()],
				outcomes[servers[i].title()])
		}
	})
	running.Go(func() {
		for _, s := range servers {
			runs := each(at(s, "server"))
			outcomes := outcomesByCell(t, runs, goRunner(dialMatrixGoSDK)(t, s.revision, runs))
			record(serverDo, s.title(), unsupportedByServer[s.title()], outcomes[s.title()])
		}
	})
	running.Wait()
	return clientDo, serverDo
}

// outcomesByCell sorts the outcomes by cell and feature. A feature without an outcome counts as
// failed.
func outcomesByCell(
	t testing.TB, runs []matrixRun, outcomes []outcome,
) map[string]map[string]string {
	t.Helper()
	byCell := make(map[string]map[string]string)
	for _, e := range runs {
		if byCell[e.Cell] == nil {
			byCell[e.Cell] = make(map[string]string)
		}
		for _, feature := range e.Features {
			byCell[e.Cell][feature] = "no outcome"
		}
	}
	for _, o := range outcomes {
		if o.Feature == "close" {
			t.Errorf("%s: close: %s", o.Cell, o.Error)
			continue
		}
		byCell[o.Cell][o.Feature] = o.Error
	}
	return byCell
}
