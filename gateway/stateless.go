package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// This file handles modern requests. Each request contains its client metadata, and its response
// does not depend on earlier messages of the connection. A connection may contain messages of both
// generations.

// modernMethods maps the methods of the modern generation to the server capabilities that they
// require, as in [methodCapabilities]; nil = none.
var modernMethods = map[string][]string{
	protocol.MethodServerDiscover:         nil,
	protocol.MethodSubscriptionsListen:    nil,
	protocol.MethodToolsList:              nil,
	protocol.MethodToolsCall:              nil,
	protocol.MethodPromptsList:            nil,
	protocol.MethodPromptsGet:             nil,
	protocol.MethodResourcesList:          nil,
	protocol.MethodResourcesTemplatesList: nil,
	protocol.MethodResourcesRead:          nil,
	protocol.MethodCompletionComplete:     {"completions"},
	protocol.MethodTasksGet:               {"extensions", protocol.TasksExtension},
	protocol.MethodTasksUpdate:            {"extensions", protocol.TasksExtension},
	protocol.MethodTasksCancel:            {"extensions", protocol.TasksExtension},
}

// ValidateHeaders checks a modern request and its HTTP headers: the method must exist, and the
// headers must match the body (streamable HTTP, "Standard Request Headers"). The function get
// returns the values of a header. The result is nil if the request is valid.
func (g *Gateway) ValidateHeaders(m wire.Message, get func(header string) []string) *wire.Error {
	if err := g.checkMethod(m.Method()); err != nil {
		return err
	}
	var schema []byte
	if m.Method() == protocol.MethodToolsCall {
		schema = g.Backends.View().Schema(m.Name())
	}
	return protocol.CheckHeaders(m, get, schema)
}

// checkMethod returns an error if the gateway does not offer the method to modern clients.
func (g *Gateway) checkMethod(method string) *wire.Error {
	needs, known := modernMethods[method]
	if !known {
		return methodNotFound(method)
	}
	if len(needs) > 0 && !catalog.Declares(modernCaps(g.Backends.View()), needs...) {
		return methodNotFound(method)
	}
	return nil
}

// handleStateless handles a modern request.
func (s *Session) handleStateless(r *peer.Request) {
	method := r.Method()
	meta, err := protocol.ParseClientMeta(r.Message)
	if err == nil {
		err = s.g.checkMethod(method)
	}
	if err == nil {
		err = checkID(r.Message)
	}
	if err == nil && len(meta.Capabilities)+len(meta.ClientInfo) > maxClientMeta {
		err = wire.Errorf(wire.CodeInvalidParams,
			"Invalid params: the client metadata in _meta is longer than %d bytes", maxClientMeta)
	}
	s.mu.Lock()
	ended := s.state == closing
	s.mu.Unlock()
	if err == nil && ended {
		err = wire.Errorf(wire.CodeInternalError, "The gateway is ending; the request did not run")
	}
	if err != nil {
		s.fail(r, err)
		return
	}
	if method == protocol.MethodServerDiscover {
		s.discover(r)
		return
	}
	client, full := s.acquireClient(meta)
	if full != nil {
		s.fail(r, wire.Errorf(wire.CodeInternalError, "%v", full))
		return
	}
	s.g.Backends.Start() // may be the first request; the client is already registered
	s.dispatchStateless(client, r, method)
}

// acquireClient returns the stateless client to which a request on this connection belongs. The
// connection retains the maxClientsPerConn clients that were used last, until it closes. If the
// table of clients is full, the connection releases some of its clients earlier. It returns the
// error of Gateway.acquireClient if no client can be evicted or the gateway is shutting down.
func (s *Session) acquireClient(meta protocol.ClientMeta) (*statelessClient, error) {
	client, err := s.g.acquireClient(s.principal, meta)
	for errors.Is(err, errTooManyClients) && len(s.clients) > 0 {
		s.clients[0].release()
		s.clients = s.clients[1:]
		client, err = s.g.acquireClient(s.principal, meta)
	}
	if err != nil {
		return nil, err
	}
	s.clients = append(s.clients, client)
	i := slices.Index(s.clients, client)
	switch known := i < len(s.clients)-1; {
	case !known && len(s.clients) <= maxClientsPerConn:
		return client, nil
	case !known:
		i = 0 // the least recently used
	}
	s.clients[i].release()
	s.clients = slices.Delete(s.clients, i, i+1)
	return client, nil
}

func (s *Session) dispatchStateless(client *statelessClient, r *peer.Request, method string) {
	switch method {
	case protocol.MethodSubscriptionsListen:
		s.openListen(client, r)
	case protocol.MethodToolsList:
		s.listStateless(r, catalog.Tools)
	case protocol.MethodPromptsList:
		s.listStateless(r, catalog.Prompts)
	case protocol.MethodResourcesList:
		s.listStateless(r, catalog.Resources)
	case protocol.MethodResourcesTemplatesList:
		s.listStateless(r, catalog.Templates)
	case protocol.MethodToolsCall:
		s.startStatelessCall(client, r, toolsCallSpec)
	case protocol.MethodPromptsGet:
		s.startStatelessCall(client, r, promptsGetSpec)
	case protocol.MethodResourcesRead:
		s.startStatelessCall(client, r, resourcesReadSpec)
	case protocol.MethodCompletionComplete:
		if spec := completionSpec(r.Message); spec != nil {
			s.startStatelessCall(client, r, spec)
		} else {
			s.fail(r, errNoReference)
		}
	case protocol.MethodTasksGet, protocol.MethodTasksUpdate, protocol.MethodTasksCancel:
		if protocol.HasTasksExtension(client.meta.Capabilities) {
			s.startStatelessCall(client, r, taskSpec)
		} else {
			s.fail(r, protocol.MissingTasksError())
		}
	default:
		s.fail(r, methodNotFound(method))
	}
}

// discover responds with the capabilities in the current view. It starts no backend, because some
// clients start several copies of a server only to send this request, and because the backends'
// handshakes depend on the client's next request.
func (s *Session) discover(r *peer.Request) {
	view := s.g.Backends.View()
	ttl := time.Minute
	if !view.Complete {
		ttl = 0 // capabilities may still shrink
	}
	s.g.replyModern(r, wire.Encode(struct {
		Versions     []string        `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions,omitempty"`
		TTL          int64           `json:"ttlMs"`
		Scope        string          `json:"cacheScope"`
	}{protocol.RevisionDates(), modernCaps(view), view.Instructions, ttl.Milliseconds(), "public"}))
}

// replyModern responds to a modern request with a result that the gateway has created. It reports
// whether the request was still open.
func (g *Gateway) replyModern(r *peer.Request, result []byte) bool {
	return r.Forward(protocol.ToModern(wire.NewResult("0", result), r.Method(), g.info, true))
}

// listStateless responds with a page of the merged list, which is the same for every client:
// "lists MUST NOT vary by connection". The request waits only while backends start for the first
// time.
func (s *Session) listStateless(r *peer.Request, kind catalog.Kind) {
	if v := s.g.Backends.View(); v.Settled {
		s.replyPage(r, kind, v.Snapshot)
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	if !r.OnCancel(contextCanceller(cancel)) {
		cancel()
		return
	}
	s.work.Go(func() {
		defer cancel()
		if v, ok := s.g.awaitCatalog(ctx, func(v *catalog.View) bool { return v.Settled }); ok {
			s.replyPage(r, kind, v.Snapshot)
		} else {
			s.fail(r, wire.Errorf(wire.CodeInternalError,
				"The gateway is ending; the request did not run"))
		}
	})
}

func (s *Session) replyPage(r *peer.Request, kind catalog.Kind, snapshot *catalog.Snapshot) {
	page, ok := snapshot.Page(kind, r.Part(wire.PartCursor))
	if !ok {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: unknown cursor"))
		return
	}
	if kind == catalog.Tools {
		page = withoutExecution(page)
	}
	ttl, private := snapshot.Freshness(kind)
	scope := `"public"`
	if private {
		scope = `"private"`
	}
	s.g.replyModern(r, wire.EditObject(page, nil,
		wire.Member{Key: "ttlMs", Text: strconv.AppendInt(nil, ttl.Milliseconds(), 10)},
		wire.Member{Key: "cacheScope", Text: []byte(scope)}))
}
