package gateway_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/mcptest"
	"mcpgateway/internal/principal"
)

// wantClients checks the status of all clients, but not their ids.
func wantClients(t *testing.T, g *gateway.Gateway, want ...gateway.ClientStatus) {
	t.Helper()
	synctest.Wait()
	got := g.Clients()
	for i := range got {
		if got[i].ID == "" {
			t.Error("a client without an id")
		}
		got[i].ID = ""
	}
	if !slices.EqualFunc(got, want, func(x, y gateway.ClientStatus) bool {
		return x.Name == y.Name && x.Principal == y.Principal && x.Transport == y.Transport &&
			slices.Equal(x.Profiles, y.Profiles) && x.Revision == y.Revision &&
			x.Since.Equal(y.Since) && x.LastRequest.Equal(y.LastRequest) &&
			x.InFlight == y.InFlight && x.Stateless == y.Stateless
	}) {
		t.Errorf("clients %+v\nwant    %+v", got, want)
	}
}

// The status has each session, with its client, principal, transport and calls in flight.
func TestClients_Sessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		began := time.Now()
		first, served := h.connectClient()
		want := gateway.ClientStatus{Transport: gateway.Stdio, Since: began, LastRequest: began}
		wantClients(t, h.gateway, want)
		first.Initialize("2025-06-18", `{}`)
		want.Name, want.Revision = "tester/1", "2025-06-18"
		gh := h.nextProcess("gh")
		gh.ServeStartup("slow")

		time.Sleep(time.Minute)
		alice := principal.FromToken(principal.TokenIdentity{Name: "alice", Profile: "p"})
		conn, second := mcptest.NewPeer(t, "client")
		s, closed := h.openSessionFor(alice, conn)
		second.Initialize("2025-11-25", `{}`)
		other := gateway.ClientStatus{Name: want.Name, Transport: gateway.StreamableHTTP,
			Principal: "alice", Profiles: []string{"p"}, Revision: "2025-11-25", Since: time.Now(),
			LastRequest: time.Now()}
		wantClients(t, h.gateway, want, other)

		time.Sleep(time.Minute)
		first.Send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"slow"}}`)
		m := gh.WantRequest("tools/call")
		want.InFlight, want.LastRequest = 1, time.Now()
		wantClients(t, h.gateway, want, other)
		time.Sleep(time.Minute)
		gh.SendResult(m.ID(), `{}`)
		want.InFlight = 0
		wantClients(t, h.gateway, want, other)

		conn.Close()
		<-closed
		s.Closed(nil)
		wantClients(t, h.gateway, want)
		first.Close()
		<-served
		wantClients(t, h.gateway)
	})
}

// A client of 2026-07-28 is in the status once, also if its requests come over stdin.
func TestClients_Stateless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, client, gh := openLegacy(t, `{}`)
		want := gateway.ClientStatus{Stateless: true, Name: "client/9", Transport: gateway.Stdio,
			Revision: "2026-07-28", Since: time.Now(), LastRequest: time.Now()}
		wantClients(t, h.gateway, want)
		time.Sleep(time.Minute)
		client.Send(modernRequest("1", "tools/call", `"name":"ask",`, `{}`))
		m := gh.WantRequest("tools/call")
		want.LastRequest, want.InFlight = time.Now(), 1
		wantClients(t, h.gateway, want)
		gh.SendResult(m.ID(), `{}`)
		want.InFlight = 0
		wantClients(t, h.gateway, want)
		e, _ := h.serveRequest(withClientVersion(8,
			modernRequest("1", "tools/call", `"name":"ask",`, `{}`)))
		gh.SendResult(gh.WantRequest("tools/call").ID(), `{}`)
		<-e
		other := want
		other.Name = "client/8"
		other.Transport, other.Since, other.LastRequest = gateway.StreamableHTTP, time.Now(),
			time.Now()
		wantClients(t, h.gateway, want, other)
	})
}
