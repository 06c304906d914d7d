package backends

import (
	"slices"
	"sync/atomic"

	"mcpgateway/catalog"
	"mcpgateway/internal/config"
	"mcpgateway/internal/contract"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A filterSet contains the filters of a backend. Only lists.setFilters replaces them; the methods
// use those in force.
type filterSet struct {
	inForce atomic.Pointer[config.Filters]
	// nil = the backend is not being replaced; set by Set.setProfiles
	replacement atomic.Pointer[pendingReplacement]
}

// A pendingReplacement describes the successor of a backend while a reload replaces the backend.
type pendingReplacement struct {
	name           string       // of the successor
	profilesBefore profileTable // before the reload
}

// of returns the filter of one of the backend's lists.
func (f *filterSet) of(k catalog.Kind) config.Filter { return filterOf(f.inForce.Load(), k) }

// filterOf returns the filter of one of a backend's lists.
func filterOf(all *config.Filters, k catalog.Kind) config.Filter {
	switch k {
	case catalog.Tools:
		return all.Tools
	case catalog.Prompts:
		return all.Prompts
	default:
		return all.Resources
	}
}

// permitsEntry reports whether the filters permit an entry of a list.
func (f *filterSet) permitsEntry(k catalog.Kind, own string) bool {
	return permitsEntry(f.inForce.Load(), k, own)
}

func permitsEntry(all *config.Filters, k catalog.Kind, own string) bool {
	filter := filterOf(all, k)
	if k == catalog.Resources || k == catalog.Templates {
		return filter.PermitsURI(own)
	}
	return filter.Permits(own)
}

// checkConfirmed returns a *[contract.QuestionError] if the client's user has to confirm a request
// and has not.
func (f *filterSet) checkConfirmed(r *contract.BackendRequest) error {
	all := f.inForce.Load()
	if len(all.Confirm) > 0 && r.Consents&contract.Confirmed == 0 &&
		callsTool(r) && all.MustConfirm(ownName(r)) {
		return errUnconfirmed
	}
	return nil
}

var errUnconfirmed = &contract.QuestionError{Asks: contract.Confirmed}

// permits reports whether the filters permit a request.
func (f *filterSet) permits(r *contract.BackendRequest) bool {
	return permitsRequest(f.inForce.Load(), r)
}

// permitsRequest reports whether filters permit a request. Requests that name no tool, prompt or
// resource are permitted. A request that ends something, such as resources/unsubscribe, and a
// request about a task are also permitted, because the filters permitted the request that created
// the subscription or the task.
func permitsRequest(all *config.Filters, r *contract.BackendRequest) bool {
	if all.Tools.IsZero() && all.Prompts.IsZero() && all.Resources.IsZero() {
		return true
	}
	switch m := r.Message; m.Method() {
	case protocol.MethodToolsCall:
		return all.Tools.Permits(ownName(r))
	case protocol.MethodPromptsGet:
		return all.Prompts.Permits(ownName(r))
	case protocol.MethodResourcesRead, protocol.MethodResourcesSubscribe:
		return all.Resources.PermitsURI(uriParam(m))
	case protocol.MethodCompletionComplete:
		return permitsCompletion(all, m)
	}
	return true
}

// callsTool reports whether a request calls a tool.
func callsTool(r *contract.BackendRequest) bool {
	return r.Message.Method() == protocol.MethodToolsCall
}

// ownName returns the backend's own name of the tool or prompt in a request.
func ownName(r *contract.BackendRequest) string {
	switch {
	case r.Entry != "":
		return r.Entry
	case r.Name != nil:
		return wire.Unquote(r.Name)
	}
	return r.Message.Name()
}

// permittedURIs returns the URIs that the filters permit.
func (f *filterSet) permittedURIs(uris []string) []string {
	if f.inForce.Load().Resources.IsZero() {
		return uris
	}
	return slices.DeleteFunc(slices.Clone(uris),
		func(uri string) bool { return !f.permitsEntry(catalog.Resources, uri) })
}

// permitsIssue reports whether the filters permit the entry of an issue, and also the entry that it
// conflicts with, if there is one.
func (f *filterSet) permitsIssue(k catalog.Kind, i catalog.Issue) bool {
	return f.permitsEntry(k, i.Item) &&
		(i.ConflictsWith == "" || f.permitsEntry(k, i.ConflictsWith))
}
