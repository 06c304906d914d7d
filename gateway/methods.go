package gateway

import (
	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A method describes which clients may send requests of a method, and what serves them: the backend
// that call finds, the function session or stateless, or else the list.
type method struct {
	// legacy and modern are the paths of the server capability without which a client of the
	// generation gets the error for an unknown method; nil = the generation has no such method.
	legacy, modern []string
	// nullID is true if a request may have the id null, because it reaches no backend and does not
	// stay open. MCP forbids this id, and two requests with it cannot be distinguished.
	nullID bool

	call      *methodSpec
	session   func(*Session, *peer.Request)
	stateless func(*clientConn, *statelessClient, *peer.Request)
	list      catalog.Kind
}

var (
	always         = []string{} // requires no capability
	tasksExtension = []string{"extensions", protocol.TasksExtension}
)

var methods = map[string]*method{
	protocol.MethodInitialize:     {legacy: always, session: (*Session).initialize, nullID: true},
	protocol.MethodServerDiscover: {modern: always, nullID: true}, // see serveModern

	protocol.MethodToolsList:              listMethod(catalog.Tools),
	protocol.MethodPromptsList:            listMethod(catalog.Prompts),
	protocol.MethodResourcesList:          listMethod(catalog.Resources),
	protocol.MethodResourcesTemplatesList: listMethod(catalog.Templates),

	protocol.MethodToolsCall:     {legacy: always, modern: always, call: toolsCallSpec},
	protocol.MethodPromptsGet:    {legacy: always, modern: always, call: promptsGetSpec},
	protocol.MethodResourcesRead: {legacy: always, modern: always, call: resourcesReadSpec},
	protocol.MethodCompletionComplete: {legacy: []string{"completions"},
		modern: []string{"completions"}, call: promptCompletionSpec}, // or resourceCompletionSpec

	protocol.MethodResourcesSubscribe: {legacy: []string{"resources", "subscribe"},
		call: subscriptionSpec},
	protocol.MethodResourcesUnsubscribe: {legacy: []string{"resources", "subscribe"},
		call: subscriptionSpec},
	protocol.MethodSubscriptionsListen: {modern: always, stateless: (*clientConn).openListen},
	protocol.MethodSetLogLevel:         {legacy: []string{"logging"}, session: (*Session).setLevel},

	protocol.MethodTasksGet:    {legacy: []string{"tasks"}, modern: tasksExtension, call: taskSpec},
	protocol.MethodTasksResult: {legacy: []string{"tasks"}, call: taskSpec},
	protocol.MethodTasksUpdate: {modern: tasksExtension, call: taskSpec},
	protocol.MethodTasksCancel: {legacy: []string{"tasks", "cancel"}, modern: tasksExtension,
		call: taskSpec},
	protocol.MethodTasksList: {legacy: []string{"tasks", "list"}, session: listTasks},
}

func listMethod(kind catalog.Kind) *method {
	return &method{legacy: always, modern: always, list: kind, nullID: true}
}

// checkID returns an error if the request has the id null and its method does not allow this id.
func (m *method) checkID(r *peer.Request) *wire.Error {
	if r.RemoteID() != "null" || m.nullID {
		return nil
	}
	return wire.Errorf(wire.CodeInvalidRequest,
		"Invalid request: %s did not run because its id is null: "+
			"send it with a string or a number as its id", r.Method())
}

// A methodSpec describes how requests of one method reach their backend. It has no state and is
// shared by all clients.
type methodSpec struct {
	// kind is the kind of the entry that a request names; it does not matter for tasks.
	kind catalog.Kind
	// namePath is the path of the name in params.
	namePath []string
	// resolve returns the route for the name in the call.
	resolve func(c *clientCall, v *catalog.View) (catalog.Route, bool)
	// mayResolveLater reports whether an unknown name may become known when starting backends have
	// listed their entries. The call then waits.
	mayResolveLater func(c *clientCall, v *catalog.View) bool
	// notFound returns the error for an unknown name.
	notFound func(name string) *wire.Error
	// allowsInput is true if the method allows input requests during a call: a modern backend may
	// respond with input_required, and a call of a stateless client is a resumableCall.
	allowsInput bool
}

var (
	toolsCallSpec = &methodSpec{
		kind: catalog.Tools, namePath: plainName, resolve: resolveNamed,
		mayResolveLater: mayResolveNamed, notFound: unknownName("tool"), allowsInput: true,
	}
	promptsGetSpec = &methodSpec{
		kind: catalog.Prompts, namePath: plainName, resolve: resolveNamed,
		mayResolveLater: mayResolveNamed, notFound: unknownName("prompt"), allowsInput: true,
	}
	resourcesReadSpec = &methodSpec{
		kind: catalog.Resources, namePath: []string{"uri"}, resolve: resolveResource,
		mayResolveLater: mayResolveResource, notFound: resourceNotFound, allowsInput: true,
	}
	subscriptionSpec = &methodSpec{
		kind: catalog.Resources, namePath: []string{"uri"}, resolve: resolveResource,
		mayResolveLater: mayResolveResource, notFound: resourceNotFound,
	}
	promptCompletionSpec = &methodSpec{
		kind: catalog.Prompts, namePath: []string{"ref", "name"}, resolve: resolveNamed,
		mayResolveLater: mayResolveNamed, notFound: unknownName("prompt"),
	}
	resourceCompletionSpec = &methodSpec{
		kind: catalog.Templates, namePath: []string{"ref", "uri"}, resolve: resolveTemplate,
		mayResolveLater: mayResolveResource, notFound: unknownName("resource"),
	}
	taskSpec = &methodSpec{
		namePath: []string{"taskId"}, notFound: unknownName("task"),
		resolve: func(c *clientCall, _ *catalog.View) (catalog.Route, bool) {
			return c.kind.findTask(c.Name)
		},
		mayResolveLater: func(*clientCall, *catalog.View) bool { return false },
	}

	plainName = []string{"name"} // is found when a message is parsed
)

func (s *methodSpec) hasPlainName() bool { return len(s.namePath) == 1 && s.namePath[0] == "name" }

// nameIn returns the JSON value at namePath in a request, nil if there is none.
func (s *methodSpec) nameIn(m wire.Message) []byte {
	if s.hasPlainName() {
		return m.Part(wire.PartName)
	}
	value, _ := wire.Lookup(m.Part(wire.PartParams), s.namePath...)
	return value
}

// completionSpec returns the methodSpec for completion/complete, which depends on the kind of
// reference; nil if the reference is invalid.
func completionSpec(m wire.Message) *methodSpec {
	kind, _ := wire.Lookup(m.Part(wire.PartParams), "ref", "type")
	switch wire.Unquote(kind) {
	case "ref/prompt":
		return promptCompletionSpec
	case "ref/resource":
		return resourceCompletionSpec
	}
	return nil
}

var errNoReference = wire.Errorf(wire.CodeInvalidParams,
	"Invalid params: completion/complete needs a ref to a prompt or a resource")

// resolveNamed resolves the name of a tool or prompt in the list that the client has read, then in
// the current catalog.
func resolveNamed(c *clientCall, v *catalog.View) (catalog.Route, bool) {
	kind := c.spec.kind
	if shown := c.kind.lastListed(kind); shown != nil {
		if route, ok := shown.Lookup(kind, c.Name); ok {
			return route, true
		}
	} else if !v.Settled {
		// an earlier backend in the configuration may still list the name
		return catalog.Route{}, false
	}
	return v.Lookup(kind, c.Name)
}

// mayResolveNamed is mayResolveLater for tools and prompts. While backends are starting, any name
// of a client that has not read a list may resolve later. For other clients, only a name with the
// prefix of a starting backend may resolve later, because the list that they have read contained
// all other names.
func mayResolveNamed(c *clientCall, v *catalog.View) bool {
	return c.kind.lastListed(c.spec.kind) == nil && !v.Complete || v.MayResolveLater(c.Name)
}

// resolveResource resolves a URI in the current catalog. If no list contains the URI and no
// template matches it, the URI resolves to the backend that has returned it to this client in a
// result.
func resolveResource(c *clientCall, v *catalog.View) (catalog.Route, bool) {
	if !v.Settled && c.kind.lastListed(catalog.Resources) == nil {
		// an earlier backend in the configuration may still list the URI
		return catalog.Route{}, false
	}
	if route, ok := v.ResolveResource(c.Name); ok {
		return route, true
	}
	return c.links.route(c.Name)
}

// resolveTemplate resolves the URI template of a resource template, or the URI of a resource.
func resolveTemplate(c *clientCall, v *catalog.View) (catalog.Route, bool) {
	if !v.Settled && c.kind.lastListed(catalog.Templates) == nil {
		return catalog.Route{}, false
	}
	if route, ok := v.Lookup(catalog.Templates, c.Name); ok {
		return route, true
	}
	return v.ResolveResource(c.Name)
}

// mayResolveResource returns true while a backend has not settled, because the backend may have a
// template that matches.
func mayResolveResource(_ *clientCall, v *catalog.View) bool { return !v.Complete }

func unknownName(noun string) func(string) *wire.Error {
	return func(name string) *wire.Error {
		return wire.Errorf(wire.CodeInvalidParams, "Unknown %s: %s", noun, truncate(name))
	}
}

// maxURI bounds a URI in an error for a client, and the URI of a subscription, in bytes.
const maxURI = 8 << 10

func resourceNotFound(uri string) *wire.Error {
	e := wire.Errorf(protocol.CodeResourceNotFound, "Resource not found")
	if len(uri) > maxURI {
		uri = truncate(uri)
	}
	e.Data = wire.Encode(map[string]string{"uri": uri})
	return e
}

// errURITooLong returns the error for a subscription to a URI that is longer than maxURI.
func errURITooLong() *wire.Error {
	return wire.Errorf(wire.CodeInvalidParams,
		"Invalid params: the URI of a subscription has at most %d bytes", maxURI)
}
