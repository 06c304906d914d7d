package logging_test

import (
	"bytes"
	"log"
	"log/slog"
	"strings"
	"testing"

	"mcpgateway/internal/logging"
)

// TestStandardLogger: a message that a library writes with package log becomes one masked line
// of limited length in the gateway's log.
func TestStandardLogger(t *testing.T) {
	var out bytes.Buffer
	end := logging.CaptureStandardLog(logging.New(&out, logging.Options{Level: slog.LevelDebug, Format: "json", Mask: logging.NewMask("s3cret/token-1")}))
	log.Printf("Unsolicited response with %q\n\x1b[31mand more", "Bearer s3cret/token-1")
	log.Print(strings.Repeat("x", 488) + " s3cret/token-1 " + strings.Repeat("y", 9000))
	end()
	log.Print("after the end")
	lines := strings.SplitAfter(out.String(), "\n")
	if len(lines) != 3 || lines[2] != "" {
		t.Fatalf("%d lines: %q", len(lines), lines)
	}
	for i, want := range []string{
		`"text":"Unsolicited response with \"Bearer ***\" \u001b[31mand more"}`, strings.Repeat("x", 488) + ` ***…"}`,
	} {
		if !strings.HasPrefix(lines[i], "{") || !strings.Contains(lines[i], want) ||
			len(lines[i]) > 700 {
			t.Errorf("line %d is %q, want %q in it", i, lines[i], want)
		}
	}
}
