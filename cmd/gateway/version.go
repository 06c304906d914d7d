package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"mcpgateway/revision"
)

func versionCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the revisions of MCP it speaks",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			commit := ""
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, s := range info.Settings {
					if s.Key == "vcs.revision" {
						commit = " " + s.Value[:min(12, len(s.Value))]
					}
				}
			}
			_, err := fmt.Fprintf(f.out, "gateway %s%s (%s %s/%s), MCP %s … %s\n", version, commit,
				runtime.Version(), runtime.GOOS, runtime.GOARCH, revision.Oldest().Date, revision.Newest().Date)
			return err
		},
	}
}
