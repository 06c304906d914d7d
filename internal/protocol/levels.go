package protocol

import "slices"

// LogLevels are the log levels of all revisions, least severe first (RFC 5424).
var LogLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert",
	"emergency"}

// LogSeverity returns the index of a log level in LogLevels, -1 if there is no such level.
func LogSeverity(level string) int { return slices.Index(LogLevels, level) }
