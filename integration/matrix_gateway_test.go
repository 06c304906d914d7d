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

// inability is what an SDK cannot do in an era, with no gateway between: deeds, and why. Each is tried directly all the
// same, so that the list is true.
type inability map[string]string

// clientsCannot are the inabilities of clients, found out at a server that can do everything.
var clientsCannot = map[string]inability{
	"mcp-go 1.2, " + sessionEra: {"cancel": "it hangs up and says nothing, which in that era is no cancellation"},
}

// serversCannot are the inabilities of servers, found out by the go-sdk's client, which can do everything.
var serversCannot = map[string]inability{}

// TestMatrix puts every client in front of a gateway for each of the servers, of one era and the other, and has it do
// all there is to do. What the client can do at a server of its era and the server for a client of its era, they can do
// through the gateway, whatever their eras. The table says ok, – if one of the two cannot, and FAIL.
func TestMatrix(t *testing.T) {
	servers := matrixServers(t)
	began := time.Now()
	clientDo, serverDo := matrixDirect(t, servers)
	t.Logf("direct: %v", time.Since(began))

	gateways := matrixGateways(t, servers)

	var table bytes.Buffer
	failed := 0
	for _, c := range matrixClients {
		began := time.Now()
		errands := make([]errand, 0, len(servers))
		for _, s := range servers {
			can := slices.DeleteFunc(slices.Clone(deeds), func(deed string) bool {
				return !clientDo[c.title()][deed] || !serverDo[s.title()][deed]
			})
			e := errand{Cell: s.title(), Deeds: can, N: "gw-" + c.tag(), Notes: s.notes}
			if gw := gateways[s.title()]; c.pipe {
				e.Command, e.Env = []string{gateway(t), "-c", gw.pipe.config}, gw.pipe.env()
			} else {
				e.URL = gw.url
			}
			errands = append(errands, e)
		}
		went := settle(t, errands, c.run(t, c.era, errands))
		fmt.Fprintf(&table, "%-36s %s\n", c.title(), strings.Join(deeds, " "))
		for i, s := range servers {
			fmt.Fprintf(&table, "  %-34s", s.title())
			for _, deed := range deeds {
				mark := "–"
				if slices.Contains(errands[i].Deeds, deed) {
					if mark = "ok"; went[s.title()][deed] != "" {
						mark = "FAIL"
						failed++
						t.Errorf("%s at %s: %s: %s", c.title(), s.title(), deed, went[s.title()][deed])
					}
				}
				fmt.Fprintf(&table, " %-*s", len(deed), mark)
			}
			table.WriteByte('\n')
		}
		t.Logf("%s: %v", c.title(), time.Since(began))
	}
	fmt.Fprintf(&table, "matrix: %d clients, %d servers, %d deeds failed\n", len(matrixClients), len(servers), failed)
	report(t, table.Bytes())
}

// A matrixGateway is the gateway in front of one server: a process that serves HTTP, and the config for one that a
// client starts for itself.
type matrixGateway struct {
	url  string
	pipe *setup
}

func matrixGateways(t *testing.T, servers []matrixServer) map[string]matrixGateway {
	all := make(map[string]matrixGateway)
	var mu sync.Mutex
	var starting sync.WaitGroup
	more := map[string]any{"catalog": map[string]any{"wait": "30s"}}
	for _, s := range servers {
		web, pipe := newSetup(t, more, s.backend), newSetup(t, more, s.backend)
		starting.Go(func() {
			url := web.listen()
			awaitReady(t, url)
			mu.Lock()
			defer mu.Unlock()
			all[s.title()] = matrixGateway{url, pipe}
		})
	}
	starting.Wait()
	return all
}

func (c matrixClient) title() string {
	if c.pipe {
		return c.name + " at a pipe, " + c.era
	}
	return c.name + ", " + c.era
}

func (c matrixClient) tag() string {
	return strings.NewReplacer(" ", "", ".", "", ",", "-").Replace(c.title())
}
func (s matrixServer) title() string { return s.name + ", " + s.era }

// matrixDirect finds out what each client and each server can do with no gateway between.
func matrixDirect(t *testing.T, servers []matrixServer) (clientDo, serverDo map[string]map[string]bool) {
	clientDo, serverDo = make(map[string]map[string]bool), make(map[string]map[string]bool)
	var mu sync.Mutex
	var running sync.WaitGroup
	// Each deed on a connection of its own, so that none is in the other's way.
	each := func(e errand) (list []errand) {
		for _, deed := range deeds {
			one := e
			one.Deeds, one.N = []string{deed}, e.N+"-"+deed
			list = append(list, one)
		}
		return list
	}
	keep := func(do map[string]map[string]bool, who string, cannot inability, went map[string]string) {
		mu.Lock()
		defer mu.Unlock()
		do[who] = make(map[string]bool)
		for _, deed := range deeds {
			can := went[deed] == ""
			do[who][deed] = can
			switch reason, listed := cannot[deed]; {
			case can && listed:
				t.Errorf("%s can do %s directly, though it is listed that %s", who, deed, reason)
			case !can && !listed:
				t.Errorf("%s cannot do %s directly: %s", who, deed, went[deed])
			}
		}
	}
	env := newSetup(t, nil).env()
	at := func(s matrixServer, n string) errand {
		e := errand{Cell: s.title(), URL: s.backend.URL, N: n, Notes: s.notes, sse: s.backend.Transport == "sse"}
		if s.backend.Command != "" {
			e.Command, e.Env = append([]string{s.backend.Command}, s.backend.Args...), slices.Clone(env)
			for k, v := range s.backend.Env {
				e.Env = append(e.Env, k+"="+v)
			}
		}
		return e
	}
	running.Go(func() {
		for _, c := range matrixClients {
			name := "go-sdk HTTP"
			if c.pipe {
				name = "go-sdk stdio"
			}
			i := slices.IndexFunc(servers, func(s matrixServer) bool { return s.name == name && s.era == c.era })
			errands := each(at(servers[i], "client-"+c.tag()))
			went := settle(t, errands, c.run(t, c.era, errands))
			keep(clientDo, c.title(), clientsCannot[c.title()], went[servers[i].title()])
		}
	})
	running.Go(func() {
		for _, s := range servers {
			errands := each(at(s, "server"))
			went := settle(t, errands, goErrands(dialMatrixGoSDK)(t, s.era, errands))
			keep(serverDo, s.title(), serversCannot[s.title()], went[s.title()])
		}
	})
	running.Wait()
	return clientDo, serverDo
}

// settle sorts the outcomes by cell and deed. What was not told of did not go well.
func settle(t testing.TB, errands []errand, outcomes []outcome) map[string]map[string]string {
	t.Helper()
	went := make(map[string]map[string]string)
	for _, e := range errands {
		if went[e.Cell] == nil {
			went[e.Cell] = make(map[string]string)
		}
		for _, deed := range e.Deeds {
			went[e.Cell][deed] = "not told of"
		}
	}
	for _, o := range outcomes {
		if o.Deed == "close" {
			t.Errorf("%s: close: %s", o.Cell, o.Error)
			continue
		}
		went[o.Cell][o.Deed] = o.Error
	}
	return went
}
