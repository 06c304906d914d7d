package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"mcpgateway/internal/config"
)

func trustCommand(c *cli) *cobra.Command {
	list := false
	cmd := &cobra.Command{
		Use:   "trust [FILE]",
		Short: "Approve a gateway.yaml, so that the gateway uses it in its folder",
		Long: `trust approves FILE (default ./gateway.yaml) with its present content, and
prints the effects of the file. Without --config the gateway uses a gateway.yaml in the
working directory only if it is approved. An invalid configuration, or anything other than a
regular file, is rejected. After a change the file must be approved again; a running gateway
then loads it. Files that the configuration refers to, such as a script in the same
folder, are not part of the approval.

    gateway trust              # approve ./gateway.yaml
    gateway trust --list       # print the approved files
    gateway untrust            # revoke the approval`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if list {
				return c.listTrusted()
			}
			return c.trustFile(fileArgument(args))
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "print the approved files")
	return cmd
}

func untrustCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "untrust [FILE]",
		Short: "Revoke the approval of a gateway.yaml",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file := fileArgument(args)
			n, err := c.trustStore().remove(file)
			if err == nil && n == 0 {
				err = hintedError{
					fmt.Errorf("%s is not approved", file),
					"gateway trust --list prints the approved files",
				}
			}
			if err == nil {
				fmt.Fprintf(c.err, "gateway: %s is no longer approved; "+
					"a running gateway keeps the configuration that it has loaded\n", file)
			}
			return err
		},
	}
}

// localFile is the name of the configuration file in the working directory.
const localFile = "gateway.yaml"

func fileArgument(args []string) string {
	if len(args) == 0 {
		return localFile
	}
	return config.ExpandHome(args[0])
}

// trustStore returns the store of approvals. Its directory comes from the command line or the
// environment, never from a configuration file.
func (c *cli) trustStore() trustStore {
	dir := config.StateDirOf(cmp.Or(c.state, os.Getenv("GATEWAY_STATE")), os.LookupEnv)
	if !filepath.IsAbs(dir) { // a relative path may be in the untrusted folder
		dir = config.DefaultStateDir(os.LookupEnv)
	}
	if dir == "" {
		return trustStore{}
	}
	return trustStore{filepath.Join(dir, "trust")}
}

// trustFile approves a file with its present content.
func (c *cli) trustFile(file string) error {
	data, err := config.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return hintedError{
			fmt.Errorf("%s: no such file", file), "give the name of the file: gateway trust FILE",
		}
	}
	if err != nil {
		return &config.Error{
			File: file, Problem: config.SystemMessage(err),
			Hint: "only a regular file can be approved",
		}
	}
	if err := c.describe(file, data); err != nil {
		return err
	}
	if err := c.trustStore().add(file, data); err != nil {
		return err
	}
	fmt.Fprintf(c.err, "gateway: %s is approved with this content\n", displayPath(file))
	return nil
}

func (c *cli) listTrusted() error {
	files, err := c.trustStore().list()
	if err != nil {
		return err
	}
	for _, file := range files {
		fmt.Fprintln(c.out, printable(file))
	}
	return nil
}

// trustImported approves a file that import has just written, if its name is gateway.yaml.
func (c *cli) trustImported(file string, data []byte) error {
	if filepath.Base(file) != localFile {
		return nil
	}
	return c.trustStore().add(file, data)
}

// Limits of the description of a file.
const (
	maxDescribed     = 200  // lines
	maxDescribedLine = 1000 // characters of one line
)

// describe prints the effects of a file. It returns an error for an invalid configuration.
func (c *cli) describe(file string, data []byte) error {
	if err := config.Validate(file, data); err != nil {
		return err
	}
	lines, err := config.Describe(file, data)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "gateway: %s:\n", displayPath(file))
	for i, line := range lines {
		if i == maxDescribed {
			fmt.Fprintf(c.err, "  and %d more: read the file\n", len(lines)-i)
			break
		}
		text := []rune(oneLine(line))
		if more := len(text) - maxDescribedLine; more > 0 {
			rest := fmt.Sprintf("… and %d more characters: read the file", more)
			text = append(text[:maxDescribedLine:maxDescribedLine], []rune(rest)...)
		}
		fmt.Fprintf(c.err, "  %s\n", string(text))
	}
	if len(lines) == 0 {
		fmt.Fprintln(c.err, "  starts nothing and calls nothing")
	}
	return nil
}

// displayPath returns the absolute path of a file for display.
func displayPath(file string) string {
	if path, err := resolvedPath(file); err == nil {
		file = path
	}
	return printable(file)
}

// approver returns a function that decides whether gateway.yaml in the working directory is used.
// The function returns nil if the file is used. If the file is not approved, ask is true, and stdin
// and stderr are terminals, the function asks the user.
func (c *cli) approver(ask bool) func(path string, data []byte) error {
	return func(path string, data []byte) error {
		store := c.trustStore()
		approved, problem := store.has(path, data)
		switch {
		case approved:
			return nil
		case ask && isTerminal(c.in) && isTerminal(c.err):
			return c.askApproval(store, path, data)
		case problem != nil:
			return problem
		}
		return c.notApprovedError(path)
	}
}

// notApprovedError returns the error about a file that is not approved.
func (c *cli) notApprovedError(path string) error {
	command := "gateway trust " + quotedWord(displayPath(path))
	if state := cmp.Or(c.state, os.Getenv("GATEWAY_STATE")); filepath.IsAbs(state) {
		command += " --state " + quotedWord(state)
	}
	return &config.Error{
		File: displayPath(path),
		Problem: "the file is in the working directory and is not approved with this content; " +
			"it can start programs",
		Hint: "read the file, then run " + command + ", or start the gateway with -c FILE",
	}
}

// askApproval prints the effects of the file, and asks the user whether to approve it. It returns
// nil if the user agrees, even if the approval cannot be stored.
func (c *cli) askApproval(store trustStore, path string, data []byte) error {
	if err := c.describe(path, data); err != nil {
		return err
	}
	fmt.Fprint(c.err,
		"The file is in the working directory and is not approved. Approve and use it? [y/N] ")
	answer, err := bufio.NewReader(io.LimitReader(c.in, 1<<10)).ReadString('\n')
	if err != nil {
		fmt.Fprintln(c.err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
	default:
		return c.notApprovedError(path)
	}
	if err := store.add(path, data); err != nil {
		fmt.Fprintf(c.err, "gateway: the approval is not stored: %v\n", err)
	}
	return nil
}
