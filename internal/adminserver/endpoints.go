package adminserver

import (
	_ "embed"
	"net/http"

	"mcpgateway/internal/adminapi"
)

// An endpoint is a path of the API. summary, parameters and response are for the OpenAPI document.
type endpoint struct {
	method, path string
	handle       http.HandlerFunc
	summary      string
	parameters   []parameter // of the query
	response     any         // a value of its type; nil = a stream of server-sent events, or JSON
}

// A parameter is a parameter of a query.
type parameter struct{ name, meaning string }

// openAPI is the OpenAPI document. TestOpenAPIDocument makes it from the endpoints.
//
//go:embed openapi.json
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPI)
}

var (
	callParameters = []parameter{
		{"backend", "name of the backend"},
		{"name", "name of the tool or prompt, or URI, for clients or at the backend"},
		{"session", "id of the session"},
		{"client", "name, or name/version, of the client"},
		{"principal", "name of the principal"},
		{"outcome", "outcome, as in the audit log"},
		{"slower", "calls that took, or are in flight for, at least this time, such as 500ms"},
	}
	logParameters = []parameter{
		{"backend", "name of a backend; may be repeated"},
		{"level", "the lowest level: debug, info, warn or error"},
		{"since", "the time of the earliest line, as in RFC 3339"},
	}
)

// endpoints returns all endpoints.
func (a *API) endpoints() []endpoint {
	const backend = "/api/v1/backends/{name}/"
	limit := parameter{"limit", "the greatest number of entries"}
	with := func(all []parameter, more ...parameter) []parameter {
		return append(all[:len(all):len(all)], more...)
	}
	return []endpoint{
		{"GET", "/api/v1/status", serveValue(a.Status.Status),
			"gateway, configuration, backends, sessions and totals", nil,
			adminapi.GatewayStatus{}},
		{"GET", "/api/v1/events", newEventHandler(a.Events).serve,
			"server-sent events, whose data is an AdminEvent each",
			with(append(logParameters, callParameters[1:]...), limit, parameter{"types",
				"the types of events, separated by commas: status, call, log, catalog"}),
			nil},
		{"POST", backend + "restart", serveAction(a.Control, adminapi.Restart),
			"restart a backend; calls in flight end first", nil, adminapi.ActionResult{}},
		{"POST", backend + "stop", serveAction(a.Control, adminapi.Stop),
			"stop a backend; calls in flight end first", nil, adminapi.ActionResult{}},
		{"POST", backend + "start", serveAction(a.Control, adminapi.Start),
			"start a backend", nil, adminapi.ActionResult{}},
		{"POST", "/api/v1/reload", serveReload(a.Control),
			"read the configuration file again", nil, adminapi.ReloadResult{}},
		{"GET", "/api/v1/calls", serveCalls(a.Calls),
			"calls in flight and recent calls", with(callParameters, limit),
			adminapi.CallList{}},
		{"GET", "/api/v1/calls/{id}", serveCall(a.Calls),
			"one of these calls, with lines of the log about its backend", nil,
			adminapi.CallDetail{}},
		{"GET", "/api/v1/logs", serveLogs(a.Logs),
			"the latest lines of the log", with(logParameters, limit), adminapi.LogList{}},
		{"GET", "/api/v1/catalog", serveValue(a.Catalog.Catalog),
			"the merged catalog, and what was repaired, left out or hidden", nil,
			adminapi.CatalogList{}},
		{"GET", "/api/v1/series", serveValue(a.Catalog.Series),
			"the calls of the last 24 hours", nil, adminapi.SeriesList{}},
		{"GET", "/api/v1/configuration", serveValue(a.Catalog.Configuration),
			"the configuration in force, and the differences from the file", nil,
			adminapi.ConfigurationList{}},
		{"GET", connectPath, a.connect.serve,
			"with Upgrade: mcp-stdio, over the admin socket only: a session of MCP", nil, nil},
		{"GET", "/metrics", func(w http.ResponseWriter, r *http.Request) {
			a.Metrics.ServeHTTP(w, r)
		}, "metrics, in the text format of Prometheus", nil,
			nil},
		{"POST", "/api/v1/page/code", servePageCode(a.Page),
			"the address of the page, and a code with which a browser can log in once", nil,
			adminapi.PageCode{}},
		{"GET", "/api/v1/openapi.json", serveOpenAPI, "this document", nil, nil},
	}
}
