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
	"mcpgateway/internal/text"
)

func trustCommand(s *configSource) *cobra.Command {
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
		Args: optionalArg,
		RunE: func(_ *cobra.Command, args []string) error {
			if list {
				return listTrusted(trustStoreOf(s.state), s.out)
			}
			return trustFile(trustStoreOf(s.state), fileArgument(args), s.err)
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "print the approved files")
	return cmd
}

func untrustCommand(s *configSource) *cobra.Command {
	return &cobra.Command{
		Use:   "untrust [FILE]",
		Short: "Revoke the approval of a gateway.yaml",
		Args:  optionalArg,
		RunE: func(_ *cobra.Command, args []string) error {
			file := fileArgument(args)
			n, err := trustStoreOf(s.state).remove(file)
			if err == nil && n == 0 {
				err = hintedError{
					fmt.Errorf("%s is not approved", file),
					"gateway trust --list prints the approved files",
				}
			}
			if err == nil {
				fmt.Fprintf(s.err, "gateway: %s is no longer approved; "+
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

// trustStoreOf returns the store of approvals; state is the value of --state. Its directory comes
// from the command line or the environment, never from a configuration file.
func trustStoreOf(state string) trustStore {
	dir := config.StateDirOf(cmp.Or(state, os.Getenv("GATEWAY_STATE")), os.LookupEnv)
	if !filepath.IsAbs(dir) { // a relative path may be in the untrusted folder
		dir = config.DefaultStateDir(os.LookupEnv)
	}
	if dir == "" {
		return trustStore{}
	}
	return trustStore{filepath.Join(dir, "trust")}
}

// trustFile approves a file with its present content. It prints the effects of the file to out.
func trustFile(store trustStore, file string, out io.Writer) error {
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
	if err := describe(out, file, data); err != nil {
		return err
	}
	if err := store.add(file, data); err != nil {
		return err
	}
	fmt.Fprintf(out, "gateway: %s is approved with this content\n", displayPath(file))
	return nil
}

func listTrusted(store trustStore, out io.Writer) error {
	files, err := store.list()
	if err != nil {
		return err
	}
	for _, file := range files {
		fmt.Fprintln(out, printable(file))
	}
	return nil
}

// trustImported approves a file that import has just written, if its name is gateway.yaml.
func trustImported(store trustStore, file string, data []byte) error {
	if filepath.Base(file) != localFile {
		return nil
	}
	return store.add(file, data)
}

// Limits of the description of a file.
const (
	maxDescribed     = 200  // lines
	maxDescribedLine = 1000 // characters of one line
)

// describe prints the effects of a file to out. It returns an error for an invalid configuration.
func describe(out io.Writer, file string, data []byte) error {
	if err := config.Validate(file, data); err != nil {
		return err
	}
	lines, err := config.Describe(file, data)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "gateway: %s:\n", displayPath(file))
	for i, line := range lines {
		if i == maxDescribed {
			fmt.Fprintf(out, "  and %d more: read the file\n", len(lines)-i)
			break
		}
		text := []rune(oneLine(line))
		if more := len(text) - maxDescribedLine; more > 0 {
			rest := fmt.Sprintf("… and %d more characters: read the file", more)
			text = append(text[:maxDescribedLine:maxDescribedLine], []rune(rest)...)
		}
		fmt.Fprintf(out, "  %s\n", string(text))
	}
	if len(lines) == 0 {
		fmt.Fprintln(out, "  starts nothing and calls nothing")
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

// An approver decides whether gateway.yaml in the working directory is used.
type approver struct {
	stdio
	state string // value of --state
	ask   bool   // ask the user if stdin and stderr are terminals
}

// approve returns nil if the file is used: it is approved, or the user agrees.
func (a approver) approve(path string, data []byte) error {
	approved, problem := trustStoreOf(a.state).has(path, data)
	switch {
	case approved:
		return nil
	case a.ask && isTerminal(a.in) && isTerminal(a.err):
		return a.askUser(path, data)
	case problem != nil:
		return problem
	}
	return a.notApprovedError(path)
}

// notApprovedError returns the error about a file that is not approved.
func (a approver) notApprovedError(path string) error {
	command := "gateway trust " + text.QuotedWord(displayPath(path))
	if state := cmp.Or(a.state, os.Getenv("GATEWAY_STATE")); filepath.IsAbs(state) {
		command += " --state " + text.QuotedWord(state)
	}
	return &config.Error{
		File: displayPath(path),
		Problem: "the file is in the working directory and is not approved with this content; " +
			"it can start programs",
		Hint: "read the file, then run " + command + ", or start the gateway with -c FILE",
	}
}

// askUser prints the effects of the file, and asks the user whether to approve it. It returns nil
// if the user agrees, even if the approval cannot be stored.
func (a approver) askUser(path string, data []byte) error {
	if err := describe(a.err, path, data); err != nil {
		return err
	}
	fmt.Fprint(a.err,
		"The file is in the working directory and is not approved. Approve and use it? [y/N] ")
	answer, err := bufio.NewReader(io.LimitReader(a.in, 1<<10)).ReadString('\n')
	if err != nil {
		fmt.Fprintln(a.err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
	default:
		return a.notApprovedError(path)
	}
	if err := trustStoreOf(a.state).add(path, data); err != nil {
		fmt.Fprintf(a.err, "gateway: the approval is not stored: %v\n", err)
	}
	return nil
}
