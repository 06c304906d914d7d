package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"mcpgateway/internal/protocol"
)

func versionCommand(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the supported revisions of MCP",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return printVersion(out) },
	}
}

func printVersion(out io.Writer) error {
	_, err := fmt.Fprintln(out, versionText())
	return err
}

// versionText returns the line that gateway version and gateway --version print.
func versionText() string {
	commit := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = " " + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return fmt.Sprintf("gateway %s%s (%s %s/%s), MCP %s … %s", version, commit,
		runtime.Version(), runtime.GOOS, runtime.GOARCH,
		protocol.Oldest().Date, protocol.Newest().Date)
}
