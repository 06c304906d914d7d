package catalog

import "mcpgateway/internal/protocol"

// A Kind identifies one of the lists of a server.
type Kind uint8

const (
	Tools Kind = iota
	Prompts
	Resources
	Templates // resource templates
)

// NumKinds is the number of kinds.
const NumKinds = 4

var kinds = [NumKinds]struct {
	method, member, noun string
	key                  string // the member that identifies an entry
	longest              int    // bound of that member, in bytes
	changed              string // the list_changed notification
	capability           string // the capability that servers with such a list declare
}{
	Tools: {protocol.MethodToolsList, "tools", "tool", "name", maxName,
		protocol.NotificationToolsListChanged, "tools"},
	Prompts: {protocol.MethodPromptsList, "prompts", "prompt", "name", maxName,
		protocol.NotificationPromptsListChanged, "prompts"},
	Resources: {protocol.MethodResourcesList, "resources", "resource", "uri", maxURI,
		protocol.NotificationResourcesListChanged, "resources"},
	Templates: {protocol.MethodResourcesTemplatesList, "resourceTemplates", "resource template",
		"uriTemplate", maxURI, protocol.NotificationResourcesListChanged, "resources"},
}

const (
	// maxName bounds the name of a tool or prompt, in bytes. MCP has 128 for tools.
	maxName = 1 << 10
	// maxURI bounds a URI and a URI template, in bytes.
	maxURI = 8 << 10
)

// ListMethod returns the method that requests the list.
func (k Kind) ListMethod() string { return kinds[k].method }

// ResultMember returns the member of the result that contains the list.
func (k Kind) ResultMember() string { return kinds[k].member }

// ChangedNotification returns the method of the list_changed notification. Resources and resource
// templates share one notification.
func (k Kind) ChangedNotification() string { return kinds[k].changed }

// Capability returns the capability that servers with such a list declare.
func (k Kind) Capability() string { return kinds[k].capability }

// String returns a noun for an entry of the list.
func (k Kind) String() string { return kinds[k].noun }

// isNamed reports whether entries are identified by names, which the gateway may replace. Entries
// of other kinds are identified by URIs, which the gateway does not change.
func (k Kind) isNamed() bool { return k == Tools || k == Prompts }
