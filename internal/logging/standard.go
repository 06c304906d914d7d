package logging

import (
	"io"
	"log"
	"log/slog"
	"strings"
)

// maxLibraryLine bounds the logged part of a library's message, in bytes, because net/http quotes
// up to 4 KiB of a server's response.
const maxLibraryLine = 500

// CaptureStandardLog logs the messages that libraries write with package log of the standard
// library to a logger, at level debug. For example, net/http writes a message when a server sends
// more bytes than its response. Package log has one logger for the process. After end is called,
// messages are discarded.
func CaptureStandardLog(to *slog.Logger) (end func()) {
	log.SetFlags(0)
	log.SetOutput(libraryWriter{to})
	return DiscardStandardLog
}

// DiscardStandardLog discards the messages that libraries write with package log of the standard
// library.
func DiscardStandardLog() { log.SetOutput(io.Discard) }

// A libraryWriter logs the messages of libraries, one per Write.
type libraryWriter struct{ to *slog.Logger }

func (l libraryWriter) Write(p []byte) (int, error) {
	text := strings.Join(strings.Fields(string(p)), " ")
	if len(text) > maxLibraryLine {
		// The truncationMark makes the mask search for a truncated secret.
		text = strings.ToValidUTF8(text[:maxLibraryLine], "") + truncationMark
	}
	l.to.Debug("message of a library", "text", text)
	return len(p), nil
}
