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
	im := importRun{configSource: s}
	cmd := &cobra.Command{
		Use:   "import [FILE...]",
		Short: "Convert the servers that other clients have configured to YAML",
		Long: `import reads the configuration files of MCP clients and converts their servers to a
gateway configuration. It prints the configuration, or writes it to the file of --output.
Without FILE it reads all existing files of the clients that it knows: ` + clientNames() + `.

    gateway import -o ~/.config/mcp-gateway/config.yaml

Secrets are not copied: ${VAR} replaces them, and the variables to set are printed to stderr.
With --keyring they are stored in the keyring of the operating system, and ${keyring:NAME}
replaces them. With --env-file FILE they are added to FILE (mode 0600), which env_file names.
The configuration then works at once.

Servers that are disabled in a client get enabled: false. Servers from a project's own files,
such as ./.mcp.json, also get enabled: false, unless these files are given as FILE.

Nothing is written if no server is found. An existing file is overwritten only with --force.`,
		RunE: func(cmd *cobra.Command, files []string) error {
			return im.run(cmd.Context(), files)
		},
	}
	cmd.Flags().StringVarP(&im.output.path, "output", "o", "",
		"write to `FILE` instead of stdout, and create its folder")
	cmd.Flags().StringVar(&im.project, "project", "",
		"read the files of the project in `DIR` instead of the working directory")
	cmd.Flags().BoolVar(&im.keyring, "keyring", false,
		"store the secrets in the keyring of the operating system")
	cmd.Flags().StringVar(&im.envFile, "env-file", "",
		"add the secrets to `FILE`, which only you can read")
	completePath(cmd, "project", cobra.ShellCompDirectiveFilterDirs)
	cmd.Flags().BoolVar(&im.output.force, "force", false, "with --output: overwrite FILE")
	return cmd
}

// An importRun is a run of gateway import with its flags.
type importRun struct {
	*configSource
	output           output
	project, envFile string
	keyring          bool
}

// run imports the servers in the files; no files = the usual files of all clients.
func (r *importRun) run(ctx context.Context, files []string) error {
	if err := r.expandPaths(files); err != nil {
		return err
	}
	destination, err := secretDestinationOf(r.keyring, r.envFile, r.output.path)
	if err != nil {
		return err
	}
	described, err := destination.describe()
	if err != nil {
		return err
	}
	im, err := clientimport.Read(files, clientimport.Options{
		Cwd:       r.project,
		IsGateway: func(url string) bool { return isGateway(ctx, url) },
		Secrets:   described,
	})
	var stored string
	if !im.Empty() {
		var werr error
		if stored, werr = destination.store(im.Secrets()); werr != nil {
			return werr
		}
		if werr := r.output.writeTo(r.out, im.YAML()); werr != nil {
			return werr
		}
	}
	for _, note := range im.Notes {
		fmt.Fprintf(r.err, "gateway: %s\n", note)
	}
	if stored != "" {
		fmt.Fprintf(r.err, "gateway: %s\n", stored)
	}
	switch {
	case im.Empty() && err == nil:
		return hintedError{errors.New("found no servers to import"), im.Hint()}
	case im.Empty(), r.output.path == "":
		return err
	}
	if err := trustImported(trustStoreOf(r.state), r.output.path, im.YAML()); err != nil {
		fmt.Fprintf(r.err, "gateway: %s is not approved: %v\n", r.output.path, err)
	}
	all, off := im.Count()
	fmt.Fprintf(r.err, "gateway: wrote %s (servers: %d, disabled: %d)\n", r.output.path, all, off)
	return err
}

// expandPaths expands ~ in the paths and makes project absolute. It returns an error if the output
// cannot be written, or if there is no such project.
func (r *importRun) expandPaths(files []string) error {
	for i := range files {
		files[i] = config.ExpandHome(files[i])
	}
	for _, path := range []*string{&r.output.path, &r.project, &r.envFile} {
		*path = config.ExpandHome(*path)
	}
	if err := r.output.validate(); err != nil || r.project == "" {
		return err
	}
	var err error
	if r.project, err = filepath.Abs(r.project); err != nil {
		return err
	}
	if info, err := os.Stat(r.project); err != nil || !info.IsDir() {
		return usageError{
			fmt.Errorf("--project: there is no folder %s", r.project),
			"name the folder of a project",
		}
	}
	return nil
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
