package protocol

import "slices"

// Levels are the log levels of all revisions, the least severe first (RFC 5424).
var Levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Severity returns how severe a log level is, from 0 on; -1 if there is no such
// level.
func Severity(level string) int { return slices.Index(Levels, level) }
