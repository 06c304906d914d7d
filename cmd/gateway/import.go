package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/internal/config"
	"mcpgateway/internal/config/clientimport"
	"mcpgateway/internal/httpserver"
)

func importCommand(s *configSource) *cobra.Command {
	var o output
	var project string
	cmd := &cobra.Command{
		Use:   "import [FILE...]",
		Short: "Convert the servers that other clients have configured to YAML",
		Long: `import reads the configuration files of MCP clients and converts their servers to a
gateway configuration. It prints the configuration, or writes it to the file of --output.
Without FILE it reads all existing files of the clients that it knows: ` + clientNames() + `.

    gateway import -o ~/.config/mcp-gateway/config.yaml

Secrets are not copied: ${VAR} replaces them, and the variables to set are printed to stderr.
Servers that are disabled in a client get enabled: false. Servers from a project's own files,
such as ./.mcp.json, also get enabled: false, unless these files are given as FILE.

Nothing is written if no server is found. An existing file is overwritten only with --force.`,
		RunE: func(cmd *cobra.Command, files []string) error {
			o.path, project = config.ExpandHome(o.path), config.ExpandHome(project)
			for i := range files {
				files[i] = config.ExpandHome(files[i])
			}
			if err := o.validate(); err != nil {
				return err
			}
			if project != "" {
				var err error
				if project, err = filepath.Abs(project); err != nil {
					return err
				}
				if info, err := os.Stat(project); err != nil || !info.IsDir() {
					return usageError{
						fmt.Errorf("--project: there is no folder %s", project),
						"name the folder of a project",
					}
				}
			}
			im, err := clientimport.Read(files, clientimport.Options{
				Cwd:       project,
				IsGateway: func(url string) bool { return isGateway(cmd.Context(), url) },
			})
			if !im.Empty() {
				if werr := o.writeTo(s.out, im.YAML()); werr != nil {
					return werr
				}
			}
			for _, note := range im.Notes {
				fmt.Fprintf(s.err, "gateway: %s\n", note)
			}
			switch {
			case im.Empty() && err == nil:
				return hintedError{errors.New("found no servers to import"), im.Hint()}
			case im.Empty(), o.path == "":
				return err
			}
			if err := trustImported(trustStoreOf(s.state), o.path, im.YAML()); err != nil {
				fmt.Fprintf(s.err, "gateway: %s is not approved: %v\n", o.path, err)
			}
			all, off := im.Count()
			fmt.Fprintf(s.err, "gateway: wrote %s (servers: %d, disabled: %d)\n", o.path, all, off)
			return err
		},
	}
	cmd.Flags().StringVarP(&o.path, "output", "o", "",
		"write to `FILE` instead of stdout, and create its folder")
	cmd.Flags().StringVar(&project, "project", "",
		"read the files of the project in `DIR` instead of the working directory")
	cmd.Flags().BoolVar(&o.force, "force", false, "with --output: overwrite FILE")
	return cmd
}

// clientNames returns the clients that import knows, wrapped for a terminal.
func clientNames() string {
	titles := clientimport.ClientTitles()
	last := len(titles) - 1
	var b strings.Builder
	width := len("Without FILE it reads all existing files of the clients that it knows: ")
	for i, title := range titles {
		if i == last {
			title = "and " + title
		} else {
			title += ","
		}
		if width+len(title) > 90 {
			b.WriteByte('\n')
			width = 0
		} else if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(title)
		width += len(title) + 1
	}
	return b.String()
}

// isGateway reports whether a gateway responds within a second at a URL on this machine. Its
// request contains no information about the user, because any program may listen at the URL.
func isGateway(ctx context.Context, at string) bool {
	u, err := url.Parse(at)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	health := url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/healthz"}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, health.String(), nil)
	if err != nil {
		return false
	}
	// No proxy is used, because a proxy cannot reach an address that is local to this machine.
	// The certificate is not verified, because it is often self-signed.
	t := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer t.CloseIdleConnections()
	res, err := t.RoundTrip(r)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	return res.Header.Get("Server") == httpserver.ServerHeader
}
