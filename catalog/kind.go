package catalog

// A Kind is one of the lists that a server has.
type Kind uint8

const (
	Tools Kind = iota
	Prompts
	Resources
	Templates // of resources' URIs
)

// NumKinds is how many there are.
const NumKinds = 4

var kinds = [NumKinds]struct {
	method, member, noun string
	key                  string // the member of an entry that tells it from the others
	longest              int    // bytes of that
	changed              string // the notification that the list is another one
	capability           string // of servers that have such
}{
	Tools:     {"tools/list", "tools", "tool", "name", maxName, "notifications/tools/list_changed", "tools"},
	Prompts:   {"prompts/list", "prompts", "prompt", "name", maxName, "notifications/prompts/list_changed", "prompts"},
	Resources: {"resources/list", "resources", "resource", "uri", maxURI, "notifications/resources/list_changed", "resources"},
	Templates: {"resources/templates/list", "resourceTemplates", "resource template", "uriTemplate", maxURI, "notifications/resources/list_changed", "resources"},
}

const (
	// maxName bounds the own name of a tool or a prompt, in bytes; MCP has 128
	// for tools.
	maxName = 1 << 10
	// maxURI bounds a URI and a template of URIs, in bytes.
	maxURI = 8 << 10
)

// ListMethod is the request by which a client asks for the list.
func (k Kind) ListMethod() string { return kinds[k].method }

// ResultMember is where the result of that request has the list.
func (k Kind) ResultMember() string { return kinds[k].member }

// ChangedNotification is the notification that the list is another one. Resources and their
// templates share theirs.
func (k Kind) ChangedNotification() string { return kinds[k].changed }

// Capability is what servers declare that have such lists.
func (k Kind) Capability() string { return kinds[k].capability }

// String is what people call an entry of the list.
func (k Kind) String() string { return kinds[k].noun }

// named reports whether the entries go by names, of which the gateway may give
// others. The rest go by URIs, which pass unchanged.
func (k Kind) named() bool { return k == Tools || k == Prompts }
