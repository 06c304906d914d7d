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

// Standard has what libraries write with the standard library's log package, which has one logger for the process, logged
// by to at the debug level: net/http does so when a server sends more than its response. end ends that; what is written
// then is dropped.
func Standard(to *slog.Logger) (end func()) {
	log.SetFlags(0)
	log.SetOutput(library{to})
	return DropStandard
}

// DropStandard drops what libraries write with the standard library's log package.
func DropStandard() { log.SetOutput(io.Discard) }

// library is a writer for the messages of libraries, one in each Write.
type library struct{ to *slog.Logger }

func (l library) Write(p []byte) (int, error) {
	text := strings.Join(strings.Fields(string(p)), " ")
	if len(text) > maxLibraryLine {
		text = strings.ToValidUTF8(text[:maxLibraryLine], "") + cutMark // the mask knows the beginning of a secret
	}
	l.to.Debug("a library of the gateway reports", "text", text)
	return len(p), nil
}
