package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"mcpgateway/transport"
)

func serveCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve MCP on stdin and stdout (the default)",
		Long: `serve speaks MCP on stdin and stdout until stdin ends or it gets SIGTERM, SIGINT or
SIGHUP. Logs go to stderr. The backends are started when a client initializes, and ended
with the gateway.`,
		Args: cobra.NoArgs,
		RunE: f.serve,
	}
}

func (f *flags) serve(cmd *cobra.Command, _ []string) error {
	a, err := f.open(false)
	if err != nil {
		return err
	}
	a.greet(f.in)
	return a.run(cmd.Context(), func(ctx context.Context) error {
		return a.gateway.Serve(ctx, transport.Stdio(f.in, f.out, int(a.Config.Limits.Message)))
	})
}

// greet tells a person what to expect.
func (a *app) greet(in *os.File) {
	if a.Source == "" {
		a.log.Info(noFile)
	} else {
		a.log.Info("serving on stdin and stdout", "file", a.Source, "version", version)
	}
	if isTerminal(in) {
		a.log.Info("stdin is a terminal, but it is a client that should be there: claude mcp add -s user gateway -- gateway")
	}
}
