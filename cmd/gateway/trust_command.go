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

func trustCommand(f *flags) *cobra.Command {
	list := false
	cmd := &cobra.Command{
		Use:   "trust [FILE]",
		Short: "Approve a gateway.yaml, so that the gateway uses it in its folder",
		Long: `trust approves FILE (default ./gateway.yaml) with its present content, and prints what the
file would do. Without --config the gateway uses a gateway.yaml of the working directory only if it
is approved. A file that is not a valid configuration is refused, and so is what is not a regular file.
After a change of the file it must be approved again; a gateway that runs loads it then.
What the file refers to, such as a script in the same folder, is not part of the approval.

    gateway trust              # approve ./gateway.yaml
    gateway trust --list       # print the approved files
    gateway untrust            # take the approval back`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if list {
				return f.listTrusted()
			}
			return f.trustFile(fileOf(args))
		},
	}
	cmd.Flags().BoolVar(&list, "list", false, "print the approved files")
	return cmd
}

func untrustCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "untrust [FILE]",
		Short: "Take back the approval of a gateway.yaml",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file := fileOf(args)
			n, err := f.trusts().remove(file)
			if err == nil && n == 0 {
				err = hinted{fmt.Errorf("%s is not approved", file), "gateway trust --list prints the approved files"}
			}
			if err == nil {
				fmt.Fprintf(f.err, "gateway: %s is no longer approved; a gateway that runs keeps what it has loaded\n", file)
			}
			return err
		},
	}
}

// localFile is the file of the working directory that is found without a name.
const localFile = "gateway.yaml"

func fileOf(args []string) string {
	if len(args) == 0 {
		return localFile
	}
	return config.ExpandHome(args[0])
}

// trusts returns the store of approvals. Its place comes from the command line or the environment,
// never from a configuration file.
func (f *flags) trusts() trustStore {
	dir := config.StateDirOf(cmp.Or(f.state, os.Getenv("GATEWAY_STATE")), os.LookupEnv)
	if !filepath.IsAbs(dir) { // it may be in the very folder that is not trusted
		dir = config.DefaultStateDir(os.LookupEnv)
	}
	if dir == "" {
		return trustStore{}
	}
	return trustStore{filepath.Join(dir, "trust")}
}

// trustFile approves a file with its present content.
func (f *flags) trustFile(file string) error {
	data, err := config.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return hinted{fmt.Errorf("%s: no such file", file), "name the file: gateway trust FILE"}
	}
	if err != nil {
		return &config.Error{File: file, Problem: config.SystemMessage(err), Hint: "only a regular file can be approved"}
	}
	if err := f.describe(file, data); err != nil {
		return err
	}
	if err := f.trusts().add(file, data); err != nil {
		return err
	}
	fmt.Fprintf(f.err, "gateway: %s is approved with this content\n", shownPath(file))
	return nil
}

func (f *flags) listTrusted() error {
	files, err := f.trusts().list()
	if err != nil {
		return err
	}
	for _, file := range files {
		fmt.Fprintln(f.out, plain(file))
	}
	return nil
}

// trustImported approves a gateway.yaml that import has just written for its user.
func (f *flags) trustImported(file string, data []byte) error {
	if filepath.Base(file) != localFile {
		return nil
	}
	return f.trusts().add(file, data)
}

// What is printed about what a file would do has bounds.
const (
	maxDescribed     = 200  // lines
	maxDescribedLine = 1000 // characters of one
)

// describe prints what a file would do. It is an error if the file is not a valid configuration.
func (f *flags) describe(file string, data []byte) error {
	if err := config.Validate(file, data); err != nil {
		return err
	}
	lines, err := config.Describe(file, data)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.err, "gateway: %s:\n", shownPath(file))
	for i, line := range lines {
		if i == maxDescribed {
			fmt.Fprintf(f.err, "  and %d more: read the file\n", len(lines)-i)
			break
		}
		text := []rune(oneLine(line))
		if more := len(text) - maxDescribedLine; more > 0 {
			text = append(text[:maxDescribedLine:maxDescribedLine], []rune(fmt.Sprintf("… and %d more characters: read the file", more))...)
		}
		fmt.Fprintf(f.err, "  %s\n", string(text))
	}
	if len(lines) == 0 {
		fmt.Fprintln(f.err, "  starts nothing and calls nothing")
	}
	return nil
}

// shownPath returns the absolute path of a file, for a person.
func shownPath(file string) string {
	if path, err := trustedPath(file); err == nil {
		file = path
	}
	return plain(file)
}

// approval returns the function that decides whether gateway.yaml of the working directory is used.
// If ask is set and there is a person at a terminal, that function asks.
func (f *flags) approval(ask bool) func(path string, data []byte) error {
	return func(path string, data []byte) error {
		store := f.trusts()
		approved, problem := store.has(path, data)
		switch {
		case approved:
			return nil
		case ask && isTerminal(f.in) && isTerminal(f.err):
			return f.askTrust(store, path, data)
		case problem != nil:
			return problem
		}
		return f.notApproved(path)
	}
}

// notApproved is the error about a file that is not approved.
func (f *flags) notApproved(path string) error {
	command := "gateway trust " + quotedWord(shownPath(path))
	if state := cmp.Or(f.state, os.Getenv("GATEWAY_STATE")); filepath.IsAbs(state) {
		command += " --state " + quotedWord(state)
	}
	return &config.Error{
		File:    shownPath(path),
		Problem: "the file is in the working directory and is not approved with this content; it can start programs",
		Hint:    "read the file, then run " + command + ", or start the gateway with -c FILE",
	}
}

// askTrust shows a person what the file would do, and asks whether it is approved.
func (f *flags) askTrust(store trustStore, path string, data []byte) error {
	if err := f.describe(path, data); err != nil {
		return err
	}
	fmt.Fprint(f.err, "The file is in the working directory and is not approved. Use it, and remember that? [y/N] ")
	answer, err := bufio.NewReader(io.LimitReader(f.in, 1<<10)).ReadString('\n')
	if err != nil {
		fmt.Fprintln(f.err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
	default:
		return f.notApproved(path)
	}
	if err := store.add(path, data); err != nil {
		fmt.Fprintf(f.err, "gateway: the answer is not remembered: %v\n", err)
	}
	return nil
}
