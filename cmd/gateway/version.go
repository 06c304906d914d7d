package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"mcpgateway/internal/protocol"
)

// A release sets these with -ldflags. Without commit and date, the version has what the go command
// recorded about the source code.
var (
	version = "0.1.0-dev"
	commit  string // hash
	date    string // of the commit, in the form of RFC 3339
)

func versionCommand(out io.Writer) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, its commit, and the supported revisions of MCP",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				text, err := json.Marshal(ownBuild())
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(out, "%s\n", text)
				return err
			}
			return printVersion(out)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

func printVersion(out io.Writer) error {
	_, err := fmt.Fprintln(out, ownBuild())
	return err
}

// A build describes a binary of the gateway.
type build struct {
	Version  string    `json:"version"`
	Commit   string    `json:"commit,omitempty"` // hash; empty = unknown
	Date     string    `json:"date,omitempty"`   // of the commit
	Modified bool      `json:"modified"`         // the source code differs from the commit
	Go       string    `json:"go"`
	OS       string    `json:"os"`
	Arch     string    `json:"arch"`
	MCP      revisions `json:"mcp"`
}

// revisions are the oldest and the newest supported revision of MCP.
type revisions struct {
	Oldest string `json:"oldest"`
	Newest string `json:"newest"`
}

// ownBuild describes this binary.
func ownBuild() build {
	b := build{
		Version: version, Commit: commit, Date: date,
		Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		MCP: revisions{protocol.Oldest().Date, protocol.Newest().Date},
	}
	if info, ok := debug.ReadBuildInfo(); ok && b.Commit == "" {
		b.addSettings(info.Settings)
	}
	return b
}

// addSettings adds what the go command recorded about the source code.
func (b *build) addSettings(all []debug.BuildSetting) {
	for _, s := range all {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
}

// String returns the line that gateway version and gateway --version print.
func (b build) String() string {
	text := "gateway " + b.Version
	if b.Commit != "" {
		text += " " + b.Commit[:min(12, len(b.Commit))]
	}
	if b.Modified {
		text += "+dirty"
	}
	if b.Date != "" {
		text += " of " + b.Date
	}
	return fmt.Sprintf("%s (%s %s/%s), MCP %s … %s", text, b.Go, b.OS, b.Arch,
		b.MCP.Oldest, b.MCP.Newest)
}
