package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"mcpgateway/config"
)

func importCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "import [FILE...]",
		Short: "Turn the servers that other clients have configured into our YAML",
		Long: `import reads the files of Claude Code, Claude Desktop, Cursor, VS Code, Windsurf, Gemini
CLI and Codex, and prints their servers as a configuration of ours on stdout. Given no
file it reads those that exist. Secrets stay behind: ${VAR} takes their place, and stderr
says which variables to set.

    gateway import > gateway.yaml`,
		RunE: func(_ *cobra.Command, files []string) error {
			im, err := config.Import(files, config.ImportOptions{})
			for _, note := range im.Notes {
				fmt.Fprintf(f.err, "gateway: %s\n", note)
			}
			if _, werr := f.out.Write(im.YAML()); werr != nil {
				return werr
			}
			if err == nil && im.Empty() {
				return hinted{errors.New("found no servers to import"), im.Hint()}
			}
			return err
		},
	}
}
