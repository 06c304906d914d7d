// Command gateway is an MCP server that combines all other MCP servers of a user. See the README
// and gateway --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"

	"mcpgateway/internal/procgroup"

	"github.com/spf13/cobra"

	"mcpgateway/internal/config"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/osservice"
	"mcpgateway/internal/reload"
	"mcpgateway/internal/sdnotify"
)

func main() {
	if os.Getenv(debugEnv) == "" {
		runtime.MemProfileRate = 0 // sampling allocations for /heap costs 1 % of a call
	}
	protect()
	logging.DiscardStandardLog() // until the log is open
	// A client that closes the gateway's stdout or stderr must not end this process before the
	// backends are stopped. SIGPIPE is caught instead of ignored, because child processes inherit
	// ignored signals.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	c := newCLI(stdio{os.Stdin, os.Stdout, os.Stderr})
	c.systemd = sdnotify.FromEnvironment() // child processes must not get the variables
	c.reopen = notifyReopen()
	c.sighup, c.secondSignal = new(reload.SIGHUP), new(signalHandler)
	ctx, stop := signalContext(c.sighup, c.secondSignal)
	c.disown = sync.OnceFunc(procgroup.BecomeSubreaper())
	code := osservice.Run(ctx, func(ctx context.Context) int { return c.run(ctx, os.Args[1:]) })
	c.disown()
	stop()
	os.Exit(code)
}

// stdio are the standard streams of a command.
type stdio struct {
	in, out, err *os.File
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, io stdio) int {
	return newCLI(io).run(ctx, args)
}

// A cli is the command line of a process.
type cli struct {
	stdio
	source  configSource
	serving bool // the gateway serves clients

	sighup       *reload.SIGHUP     // may be nil
	secondSignal *signalHandler     // may be nil
	reopen       <-chan os.Signal   // requests to reopen the audit file; nil = none
	mask         *logging.Mask      // mask of the last app; nil = no app was opened yet
	systemd      *sdnotify.Notifier // may be nil
	// disown ends the role of this process as the parent of orphans; nil = it does not have it.
	// While it has the role, only package procgroup may start child processes.
	disown func()
}

func newCLI(io stdio) *cli { return &cli{stdio: io, source: configSource{stdio: io}} }

func (c *cli) run(ctx context.Context, args []string) int {
	io := c.stdio
	root := c.command()
	root.SetArgs(args)
	root.SetIn(io.in)
	root.SetOut(io.out)
	root.SetErr(io.err)
	rejectUnknownShell(root)
	var unknown error // error about an unknown command after help; cobra's help returns none
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if words := cmd.Flags().Args(); cmd == root && len(words) > 0 {
			unknown = noArgs(cmd, words)
			return
		}
		help(cmd, args)
	})
	verb, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = unknown
	}
	code := reportError(io.err, c.mask, err)
	isServe := verb == root || verb.Name() == "serve"
	if isServe && err != nil && unknown == nil && !c.serving {
		var problem strings.Builder
		reportError(&problem, c.mask, err)
		reportStartupError(ctx, io, strings.ReplaceAll("\n"+problem.String(), "\ngateway: ", "\n"))
	}
	return code
}

// The exit codes. The documentation promises them.
const (
	exitOK     = 0
	exitFailed = 1 // the command failed
	exitUsage  = 2 // the command line or the configuration is invalid
)

// A usageError is a mistake in the command line.
type usageError struct {
	error
	hint string
}

// usageErrorOf returns a usageError with the help of a command as the hint.
func usageErrorOf(command string, err error) error { return usageError{err, command + " --help"} }

// A hintedError has a hint for the user.
type hintedError struct {
	error
	hint string
}

func (h hintedError) Unwrap() error { return h.error }

// errReported is a failure that the command has already reported.
var errReported = errors.New("")

// errInterrupted is the error of a command that a signal has stopped before its end.
var errInterrupted = errors.New("interrupted")

// reportError prints an error and its hint, with secrets masked, and returns the exit code. It
// prints nothing for nil and for errReported.
func reportError(w io.Writer, mask *logging.Mask, err error) int {
	var usage usageError
	var bad config.Errors
	var one *config.Error
	var h hintedError
	hint := ""
	code := exitFailed
	switch {
	case err == nil:
		return exitOK
	case err == errReported:
		return exitFailed
	case errors.As(err, &bad):
		for line, hint := range bad.Hinted() {
			printError(w, mask.String(line), mask.String(hint))
		}
		return exitUsage
	case errors.As(err, &one):
		code, hint = exitUsage, one.Hint
	case errors.As(err, &usage):
		code, hint = exitUsage, usage.hint
	}
	if errors.As(err, &h) {
		hint = h.hint
	}
	printError(w, mask.String(err.Error()), mask.String(hint))
	return code
}

// printError prints a problem and, unless it is "", a hint. Control characters are escaped even if
// w is not a terminal, because a terminal may show the text later.
func printError(w io.Writer, problem, hint string) {
	for _, line := range strings.Split(escapeControls(problem), "\n") {
		fmt.Fprintf(w, "gateway: %s\n", line)
	}
	if hint != "" {
		fmt.Fprintf(w, "hint: %s\n", escapeControls(hint))
	}
}

// command returns the root command with its subcommands.
func (c *cli) command() *cobra.Command {
	var showVersion, alsoStdio bool
	root := &cobra.Command{
		Use:   "gateway",
		Short: "One MCP server that combines all your other servers",
		Long: `gateway is the one MCP server that you configure in Claude Code, Cursor, VS
Code or any other client. It gives clients the tools of all your other servers, which you
list in one file.

Without a command it serves MCP on stdin and stdout, as clients expect.

    claude mcp add -s user gateway -- gateway      # let Claude Code use it
    gateway import -o gateway.yaml                 # copy the servers that your clients have
    gateway check                                  # check that all of them start`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if showVersion {
				return printVersion(c.out)
			}
			return serve(cmd.Context(), c, alsoStdio)
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	// cobra's own version flag is not used: with a version text other than cobra's default, the
	// linker includes text/template, and therefore every exported method of the program (2 MB).
	root.Flags().BoolVarP(&showVersion, "version", "v", false,
		"print the version, and the supported revisions of MCP")
	p := root.PersistentFlags()
	p.StringVarP(&c.source.path, "config", "c", "",
		"the configuration `FILE` (default ./gateway.yaml, then the user's)")
	p.StringVar(&c.source.logLevel, "log-level", "",
		"debug, info, warn or error (default info; error for commands that print results)")
	p.StringVar(&c.source.logFormat, "log-format", "", "text or json (default text)")
	p.StringVar(&c.source.state, "state", "",
		"the `DIR` for state such as the last known catalogs, or none")
	completeFlag(root, "log-level", values("debug", "info", "warn", "error"))
	completeFlag(root, "log-format", values("text", "json"))
	completePath(root, "config", cobra.ShellCompDirectiveFilterFileExt, "yaml", "yml", "json")
	completePath(root, "state", cobra.ShellCompDirectiveFilterDirs)
	serveFlags(root, &c.source, &alsoStdio)
	root.SetFlagErrorFunc(flagError)
	root.SuggestionsMinimumDistance = 2
	root.AddCommand(
		serveCommand(c), statusCommand(c), reloadCommand(c), logsCommand(c), pageCommand(c),
		checkCommand(c), toolsCommand(c), callCommand(c),
		loginCommand(c), logoutCommand(c), approveCommand(c),
		importCommand(&c.source), trustCommand(&c.source), untrustCommand(&c.source),
		auditCommand(c), secretCommand(c.stdio), doctorCommand(c),
		healthCommand(&c.source), serviceCommand(c),
		versionCommand(c.out), manCommand(),
	)
	for _, v := range actionVerbs {
		root.AddCommand(actionCommand(c, v))
	}
	root.SetHelpCommand(helpCommand())
	completeNoFiles(root)
	for _, cmd := range append(root.Commands(), root) {
		cmd.Args = asUsageErrors(cmd.Args)
	}
	return root
}

// helpCommand returns the help command. Unlike cobra's help command, it returns an error for an
// unknown command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "help [COMMAND]",
		Short:             "Help about any command",
		ValidArgsFunction: completeCommand,
		RunE: func(c *cobra.Command, args []string) error {
			about, rest, err := c.Root().Find(args)
			switch {
			case err != nil:
				return usageErrorOf(c.CommandPath(), err)
			case len(rest) > 0 && about.HasSubCommands():
				return noArgs(about, rest)
			case len(rest) > 0:
				err := fmt.Errorf("%s has no subcommand %q", about.CommandPath(), rest[0])
				return usageErrorOf(c.CommandPath(), err)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// flagError returns the usageError about a flag. If an unknown flag has the name of a configuration
// key, the hint explains how to set the key.
func flagError(c *cobra.Command, err error) error {
	name, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if ok && c.Root().Flag(name) == nil {
		if hint := config.FlagHint(name); hint != "" {
			return usageError{err, hint}
		}
	}
	return usageErrorOf(c.CommandPath(), err)
}

// rejectUnknownShell makes the completion command return an error for an unknown shell, for which
// cobra would print the help. The output of root must be set before this call, because cobra's
// completion command keeps the output.
func rejectUnknownShell(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil || c == root {
		return
	}
	c.SuggestionsMinimumDistance = root.SuggestionsMinimumDistance
	c.Args = noArgs
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
}

// asUsageErrors returns a check of arguments that calls check and returns its error as a
// usageError. If check is nil, all arguments are valid.
func asUsageErrors(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if check == nil {
			check = cobra.ArbitraryArgs
		}
		err := check(c, args)
		if _, isUsage := errors.AsType[usageError](err); err == nil || isUsage {
			return err
		}
		return usageErrorOf(c.CommandPath(), err)
	}
}

// oneArg returns a check that there is exactly one argument. what describes it.
func oneArg(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			_, placeholder, _ := strings.Cut(c.Use, " ")
			path := c.CommandPath()
			return usageErrorOf(path, fmt.Errorf("name %s: %s %s", what, path, placeholder))
		}
		return optionalArg(c, args)
	}
}

// optionalArg returns a usageError if there is more than one argument. The error does not contain
// the others, because they may be secrets.
func optionalArg(c *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	path := c.CommandPath()
	return usageErrorOf(path, fmt.Errorf("%s takes one argument, but got %d", path, len(args)))
}

// noArgs returns a usageError if there are arguments. The hint suggests the flag for the
// configuration, a similar command, or the help.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	arg, path := args[0], c.CommandPath()
	err := fmt.Errorf("%s takes no arguments, but got %q", path, arg)
	if c.HasSubCommands() {
		err = fmt.Errorf("unknown command %q", arg)
	}
	near := c.SuggestionsFor(arg)
	switch {
	case isFile(arg):
		return usageError{err, "use -c to name a configuration file: " + path + " -c " + arg}
	case len(near) > 0:
		suggestion := path + " " + strings.Join(near, ", or "+path+" ")
		return usageError{err, "did you mean " + suggestion + "?"}
	}
	return usageErrorOf(path, err)
}

// isFile reports whether a word is the name of a file, or has the suffix of a configuration file.
func isFile(word string) bool {
	info, err := os.Stat(word)
	return err == nil && info.Mode().IsRegular() ||
		slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(word))
}
