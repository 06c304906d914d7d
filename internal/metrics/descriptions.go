package metrics

import "github.com/prometheus/client_golang/prometheus"

const prefix = "mcp_gateway_"

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

// The bounds of the buckets are powers of two, as in activity.Histogram, so that the counts are
// exact.
var (
	// microseconds: 1, 4, 16, 66 and 262 ms, 1, 4, 17 and 67 s
	durationBounds = []uint64{1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22,
		1 << 24, 1 << 26}
	// bytes
	sizeBounds = []uint64{1 << 8, 1 << 12, 1 << 16, 1 << 20, 1 << 24}
)

var entryLabels = []string{"backend", "method", "tool"}

var (
	buildInfo = describe("build_info", "The version of the gateway. The value is 1.",
		"version", "commit", "go")

	calls = describe("calls_total",
		"Calls that have ended, by their outcome in the audit log. tool is the name of the tool or "+
			"prompt at the backend.", append(entryLabels[:3:3], "outcome")...)
	callErrors = describe("call_errors_total",
		"Calls that have ended with an outcome other than ok, cancelled or input_required.",
		entryLabels...)
	callDuration = describe("call_duration_seconds",
		"Time from the arrival of a call that was sent to its end, with the time in queues.",
		entryLabels...)
	argumentSize = describe("call_arguments_bytes", "Sizes of the arguments of calls.",
		entryLabels...)
	resultSize = describe("call_result_bytes", "Sizes of the results of calls.", entryLabels...)

	callsInFlight = describe("calls_in_flight", "Calls that have not ended.", "backend")
	callsQueued   = describe("calls_queued",
		"Calls that wait for a slot (max_in_flight) or for a connection.", "backend")

	backendState = describe("backend_state", "1 for the state of a backend, 0 for all others. "+
		"The state open means that its breaker is open.", "backend", "state")
	backendHealthy = describe("backend_healthy",
		"0 if somebody should do something about a backend.", "backend")
	backendStateSince = describe("backend_state_since_timestamp_seconds",
		"The time at which a backend got its state.", "backend")
	backendRestarts = describe("backend_restarts_total",
		"Starts of a backend after it has failed or ended.", "backend")
	backendConnections = describe("backend_connections", "Connections that are ready.", "backend")
	catalogEntries     = describe("catalog_entries",
		"Entries in the lists of a backend that its filters permit.", "backend", "kind")

	sessions = describe("sessions", "Connected clients. A modern client has no session.",
		"transport", "generation")

	auditWritten = describe("audit_records_total", "Audit records that were written.")
	auditLost    = describe("audit_records_lost_total",
		"Audit records that could not be written.")
	auditQueued    = describe("audit_records_queued", "Audit records that are not written yet.")
	auditLag       = describe("audit_lag_seconds", "Age of the oldest record that is not written.")
	auditFileWorks = describe("audit_file_works",
		"0 if the audit file cannot be written, rotated or compressed.")
	auditFileSize = describe("audit_files_bytes",
		"Size of the audit file and of the former files that are kept.")

	configurationValid = describe("configuration_valid",
		"0 if the last reload found errors in the configuration file, and changed nothing.")
	configurationDiffers = describe("configuration_differs",
		"1 if the configuration file has changed since it was read.")
)
