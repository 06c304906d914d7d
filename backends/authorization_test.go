package backends_test

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mcpgateway/backends"
	"mcpgateway/internal/config"
	"mcpgateway/internal/oauthclient"
)

// Each key of oauth takes effect in the OAuth client of its backend. A backend with credentials of
// its own, and one without a URL, have none.
func TestKeysOfOAuthReachTheClientOfTheBackend(t *testing.T) {
	const url = "https://notes.example/mcp"
	store := oauthclient.NewStore("", nil)
	log := slog.New(slog.DiscardHandler)
	set := backends.New(backends.Options{Logins: store, Log: log, Backends: []config.Backend{
		{Name: "default", Enabled: true, URL: url},
		{Name: "mine", Enabled: true, URL: url, OAuth: config.OAuth{ClientID: "mine",
			ClientSecret: "hidden", Scopes: []string{"a", "b"}, RedirectPort: 8765,
			AllowPrivate: true}},
		{Name: "document", Enabled: true, URL: url, OAuth: config.OAuth{
			ClientMetadataURL: "https://gateway.example/client.json"}},
		{Name: "program", Enabled: true, URL: url, OAuth: config.OAuth{
			Grant: config.GrantClientCredentials, ClientID: "p", ClientSecret: "hidden"}},
		{Name: "person", Enabled: true, URL: url, OAuth: config.OAuth{
			Grant: config.GrantAuthorizationCode}},
		{Name: "header", Enabled: true, URL: url,
			Headers: map[string]string{"authorization": "Bearer x"}},
		{Name: "user", Enabled: true, URL: "https://me:secret@notes.example/mcp"},
		{Name: "child", Enabled: true, Command: "x"},
	}})
	for name, want := range map[string]*oauthclient.Options{
		"default": {},
		"mine": {ClientID: "mine", ClientSecret: "hidden", Scopes: []string{"a", "b"},
			RedirectPort: 8765, AllowPrivate: true},
		"document": {ClientMetadataURL: "https://gateway.example/client.json"},
		"program":  {ClientCredentials: true, ClientID: "p", ClientSecret: "hidden"},
		"person":   {},
		"header":   nil, "user": nil, "child": nil,
	} {
		got := set.Login(name)
		if (got == nil) != (want == nil) {
			t.Errorf("%s: an OAuth client: %v", name, got != nil)
		}
		if got == nil || want == nil {
			continue
		}
		want.Name, want.URL, want.Command = name, url, "gateway login "+name
		ignored := cmpopts.IgnoreFields(oauthclient.Options{}, "Store", "Log", "TLS",
			"OnNeedsLogin", "OnSecret", "Go")
		if diff := cmp.Diff(*want, got.Options, ignored); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got.Store != store {
			t.Errorf("%s: the logins are stored elsewhere", name)
		}
	}
	set = backends.New(backends.Options{Log: log, Backends: []config.Backend{
		{Name: "default", Enabled: true, URL: url}}})
	if set.Login("default") != nil {
		t.Error("an OAuth client without a store of logins")
	}
}
