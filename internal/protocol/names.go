package protocol

import "github.com/mark3labs/mcp-go/mcp"

// The methods of MCP that the gateway knows.
const (
	MethodInitialize          = string(mcp.MethodInitialize)
	MethodPing                = string(mcp.MethodPing)
	MethodServerDiscover      = string(mcp.MethodServerDiscover)
	MethodSubscriptionsListen = string(mcp.MethodSubscriptionsListen)

	MethodToolsList              = string(mcp.MethodToolsList)
	MethodToolsCall              = string(mcp.MethodToolsCall)
	MethodPromptsList            = string(mcp.MethodPromptsList)
	MethodPromptsGet             = string(mcp.MethodPromptsGet)
	MethodResourcesList          = string(mcp.MethodResourcesList)
	MethodResourcesTemplatesList = string(mcp.MethodResourcesTemplatesList)
	MethodResourcesRead          = string(mcp.MethodResourcesRead)
	MethodResourcesSubscribe     = string(mcp.MethodResourcesSubscribe)
	MethodResourcesUnsubscribe   = string(mcp.MethodResourcesUnsubscribe)
	MethodCompletionComplete     = string(mcp.MethodCompletionComplete)
	MethodSetLogLevel            = string(mcp.MethodSetLogLevel)

	MethodTasksList   = string(mcp.MethodTasksList)
	MethodTasksGet    = string(mcp.MethodTasksGet)
	MethodTasksResult = string(mcp.MethodTasksResult)
	MethodTasksUpdate = "tasks/update"
	MethodTasksCancel = string(mcp.MethodTasksCancel)
)

// The methods of requests from servers to clients.
const (
	MethodElicitationCreate     = string(mcp.MethodElicitationCreate)
	MethodSamplingCreateMessage = string(mcp.MethodSamplingCreateMessage)
	MethodRootsList             = string(mcp.MethodListRoots)
)

// The methods of notifications.
const (
	NotificationInitialized               = string(mcp.MethodNotificationInitialized)
	NotificationCancelled                 = string(mcp.MethodNotificationCancelled)
	NotificationProgress                  = string(mcp.MethodNotificationProgress)
	NotificationMessage                   = string(mcp.MethodNotificationMessage)
	NotificationToolsListChanged          = mcp.MethodNotificationToolsListChanged
	NotificationPromptsListChanged        = mcp.MethodNotificationPromptsListChanged
	NotificationResourcesListChanged      = mcp.MethodNotificationResourcesListChanged
	NotificationResourceUpdated           = mcp.MethodNotificationResourceUpdated
	NotificationRootsListChanged          = mcp.MethodNotificationRootsListChanged
	NotificationElicitationComplete       = string(mcp.MethodNotificationElicitationComplete)
	NotificationSubscriptionsAcknowledged = mcp.MethodNotificationSubscriptionsAcknowledged

	NotificationTasksStatus = mcp.MethodNotificationTasksStatus // a legacy task has changed
	NotificationTasks       = "notifications/tasks"             // a modern task has changed
)

// HTTP headers, in the canonical form of net/http.
const (
	HeaderSessionID       = mcp.HeaderSessionID
	HeaderProtocolVersion = mcp.HeaderProtocolVersion
	HeaderLastEventID     = "Last-Event-Id"
)

// HTTP headers that repeat parts of the body of a modern request, for intermediaries that do not
// read the body.
const (
	HeaderMethod      = mcp.HeaderMethod
	HeaderName        = mcp.HeaderName
	HeaderParamPrefix = mcp.HeaderParamPrefix
)

// HeaderAnnotation is the keyword of a tool's inputSchema that names the header which repeats an
// argument.
const HeaderAnnotation = "x-mcp-header"

// metaPrefix is the prefix of names of _meta members and extensions that is reserved for MCP.
const metaPrefix = "io.modelcontextprotocol/"

// Members of _meta of the modern generation. [ClientMeta] contains the members of a request.
const (
	MetaProtocolVersion    = mcp.MetaKeyProtocolVersion
	MetaClientCapabilities = mcp.MetaKeyClientCapabilities
	MetaClientInfo         = mcp.MetaKeyClientInfo
	MetaLogLevel           = mcp.MetaKeyLogLevel
	MetaServerInfo         = mcp.MetaKeyServerInfo
	MetaSubscriptionID     = mcp.MetaKeySubscriptionID
)

// MetaRelatedTask is the member of _meta that identifies the task that a legacy message belongs to.
// Modern messages do not have this member.
const MetaRelatedTask = metaPrefix + "related-task"

// TasksExtension is the modern extension that lets calls become tasks.
const TasksExtension = metaPrefix + "tasks"
