package main

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
)

// An existing audit file that other users can read or change causes one warning. A new one has
// mode 0600.
func TestWarnsOfReadableAuditFile(t *testing.T) {
	for mode, want := range map[os.FileMode]string{
		0o666: "audit file readable and writable by other users",
		0o644: "audit file readable by other users",
		0o640: "audit file readable by other users",
		0o620: "audit file writable by other users",
		0o600: "", 0o400: "", 0: "",
	} {
		for _, payloads := range []string{"none", "all"} {
			path := filepath.Join(t.TempDir(), "my audit.jsonl")
			if mode != 0 {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, mode); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			l := &config.Loaded{
				Config: &config.Config{Audit: config.Audit{File: path, Payloads: payloads}},
			}
			log := slog.New(slog.NewTextHandler(&out, nil))
			if records, err := openAudit(l, log, logging.NewMask(), nil); err == nil {
				records.close()
			}
			got := out.String()
			switch {
			case want == "" && got != "":
				t.Errorf("%o: %s", mode, got)
			case want == "":
			case strings.Count(got, "level=WARN") != 1,
				!strings.Contains(got, want),
				!strings.Contains(got, "run chmod 600 '"+path+"'"),
				strings.Contains(got, "may contain secrets") != (payloads == "all"):
				t.Errorf("%o, payloads %s: %s", mode, payloads, got)
			}
			if info, err := os.Stat(path); mode == 0 &&
				(err != nil || info.Mode().Perm() != 0o600) {
				t.Errorf("a new file: %v %v", info, err)
			}
		}
	}
}
