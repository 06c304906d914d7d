package adminserver

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"mcpgateway/internal/adminapi"
)

var update = flag.Bool("update", false, "write openapi.json")

// The OpenAPI document is that of the endpoints and of the Go types: each path and method is in
// both, with its parameters and the schema of its response.
func TestOpenAPIDocument(t *testing.T) {
	want, err := json.MarshalIndent(document(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(want, openAPI) && !*update {
		t.Error("openapi.json does not describe the endpoints: " +
			"go test ./internal/adminserver -run TestOpenAPIDocument -update")
	}
}

type object = map[string]any

// document returns the OpenAPI document of all endpoints.
func document(t *testing.T) object {
	components := object{"AdminEvent": schemaOf(t, adminapi.AdminEvent{}),
		"APIError": schemaOf(t, adminapi.APIError{})}
	paths := make(map[string]object)
	a := &API{Options: Options{Status: anySource{}, Catalog: anySource{}}}
	for _, e := range a.endpoints() {
		parameters := []object{}
		for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(e.path, -1) {
			parameters = append(parameters, object{"name": m[1], "in": "path", "required": true,
				"schema": object{"type": "string"}})
		}
		for _, p := range e.parameters {
			parameters = append(parameters, object{"name": p.name, "in": "query",
				"description": p.meaning, "schema": object{"type": "string"}})
		}
		content := object{"application/json": object{}}
		switch {
		case e.response != nil:
			name := reflect.TypeOf(e.response).Name()
			components[name] = schemaOf(t, e.response)
			content = object{"application/json": object{
				"schema": object{"$ref": "#/components/schemas/" + name}}}
		case e.path == "/api/v1/events":
			content = object{"text/event-stream": object{
				"schema": object{"$ref": "#/components/schemas/AdminEvent"}}}
		}
		if e.path == "/metrics" {
			content = object{"text/plain": object{"schema": object{"type": "string"}}}
		}
		if paths[e.path] == nil {
			paths[e.path] = make(object)
		}
		method := map[string]string{"GET": "get", "POST": "post"}[e.method]
		paths[e.path][method] = object{
			"summary": e.summary, "parameters": parameters,
			"responses": object{
				"200": object{"description": "success", "content": content},
				"default": object{"description": "the request was refused or has failed",
					"content": object{"application/json": object{
						"schema": object{"$ref": "#/components/schemas/APIError"}}}},
			},
		}
	}
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "Admin API of the gateway", "version": "1"},
		"paths":   paths,
		"components": object{"schemas": components, "securitySchemes": object{
			"adminToken": object{"type": "http", "scheme": "bearer"}}},
		"security": []object{{"adminToken": []string{}}, {}},
	}
}

// anySource is a source of which only the methods are needed.
type anySource struct{}

func (anySource) Status() adminapi.GatewayStatus { return adminapi.GatewayStatus{} }
func (anySource) Configuration() adminapi.ConfigurationList {
	return adminapi.ConfigurationList{}
}

func (anySource) Catalog() adminapi.CatalogList { return adminapi.CatalogList{} }
func (anySource) Series() adminapi.SeriesList   { return adminapi.SeriesList{} }

// schemaOf returns the JSON schema of the type of a value.
func schemaOf(t *testing.T, value any) *jsonschema.Schema {
	t.Helper()
	s, err := jsonschema.ForType(reflect.TypeOf(value), &jsonschema.ForOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each path of the document is an endpoint, and the other way round. (The document is compared as a
// whole above; this says which path is wrong.)
func TestOpenAPIPaths(t *testing.T) {
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	served := make(map[string]bool)
	a := &API{Options: Options{Status: anySource{}, Catalog: anySource{}}}
	for _, e := range a.endpoints() {
		served[e.path] = true
	}
	if got, want := slices.Sorted(maps.Keys(doc.Paths)),
		slices.Sorted(maps.Keys(served)); !slices.Equal(got, want) {
		t.Errorf("the document has %q, the server %q", got, want)
	}
}
