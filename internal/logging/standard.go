package logging

import (
	"io"
	"log"
	"log/slog"
	"strings"
)

// maxLibraryLine is how much of a message of a library is logged, in bytes: net/http quotes up to 4 KiB of what a server
// sent.
const maxLibraryLine = 500

// CaptureStandardLog has what libraries write with the standard library's log package, which has one logger for the process, logged
// by to at the debug level: net/http does so when a server sends more than its response. end ends that; what is written
// then is dropped.
func CaptureStandardLog(to *slog.Logger) (end func()) {
	log.SetFlags(0)
	log.SetOutput(libraryWriter{to})
	return DiscardStandardLog
}

// DiscardStandardLog drops what libraries write with the standard library's log package.
func DiscardStandardLog() { log.SetOutput(io.Discard) }

// libraryWriter is a writer for the messages of libraries, one in each Write.
type libraryWriter struct{ to *slog.Logger }

func (l libraryWriter) Write(p []byte) (int, error) {
	text := strings.Join(strings.Fields(string(p)), " ")
	if len(text) > maxLibraryLine {
		text = strings.ToValidUTF8(text[:maxLibraryLine], "") + truncationMark // the mask knows the beginning of a secret
	}
	l.to.Debug("a library of the gateway reports", "text", text)
	return len(p), nil
}
