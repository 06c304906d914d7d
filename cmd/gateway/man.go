package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand returns the hidden command that writes the man pages for packages.
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the man pages of all commands into a directory",
		Hidden: true,
		Args:   oneArg("the directory"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeManPages(cmd.Root(), args[0])
		},
	}
}

// writeManPages writes a page for root and each command below it that is not hidden.
func writeManPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range documentedCommands(root) {
		file := filepath.Join(dir, manName(c)+".1")
		if err := os.WriteFile(file, []byte(manPage(c)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// documentedCommands returns a command and all commands below it, without hidden ones.
func documentedCommands(c *cobra.Command) (all []*cobra.Command) {
	if c.Hidden {
		return nil
	}
	c.InitDefaultHelpFlag()
	all = append(all, c)
	for _, sub := range c.Commands() {
		all = append(all, documentedCommands(sub)...)
	}
	return all
}

// manName returns the name of the page of a command, such as gateway-serve.
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the page of a command, in the macros of man(7).
func manPage(c *cobra.Command) string {
	var b strings.Builder
	b.WriteString(".nh\n.ad l\n") // no hyphens in commands
	day, _, _ := strings.Cut(ownBuild().Date, "T")
	fmt.Fprintf(&b, ".TH %s 1 %q %q %q\n", strings.ToUpper(manName(c)), day,
		"gateway "+version, "MCP gateway")
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", manText(manName(c)), manText(lowerFirst(c.Short)))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n%s\n", manText(c.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	writeManText(&b, cmp.Or(c.Long, c.Short+"."))
	if subs := documentedCommands(c)[1:]; len(subs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range subs {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", manText(sub.CommandPath()), manText(sub.Short))
		}
	}
	writeManFlags(&b, "OPTIONS", c.NonInheritedFlags())
	writeManFlags(&b, "COMMON OPTIONS", c.InheritedFlags())
	if !c.HasParent() {
		writeManFiles(&b)
	}
	b.WriteString(".SH EXIT STATUS\n0: success. 1: the command failed. " +
		"2: the command line or the configuration is invalid.\n")
	if c.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", manText(manName(c.Parent())))
	}
	return b.String()
}

// writeManFiles writes the section about files.
func writeManFiles(b *strings.Builder) {
	b.WriteString(".SH FILES\n")
	for _, f := range [][2]string{
		{"./gateway.yaml", "configuration; it must be approved with gateway trust"},
		{"~/.config/mcp-gateway/config.yaml", "configuration of the user"},
		{"~/.local/state/mcp-gateway/", "state, such as the last known catalogs"},
	} {
		fmt.Fprintf(b, ".TP\n.I %s\n%s\n", manText(f[0]), manText(f[1]))
	}
}

// writeManFlags writes a section about flags, unless there are none.
func writeManFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		placeholder, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(b, "\\fB%s\\fR, ", manText("-"+f.Shorthand))
		}
		fmt.Fprintf(b, "\\fB%s\\fR", manText("--"+f.Name))
		if placeholder != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", manText(placeholder))
		}
		fmt.Fprintf(b, "\n%s\n", manText(usage))
	})
}

// writeManText writes text with empty lines between paragraphs. Indented lines are examples.
func writeManText(b *strings.Builder, text string) {
	example := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(line, "    ")
		switch {
		case indented && !example:
			b.WriteString(".PP\n.RS 4\n.nf\n")
		case !indented && example:
			b.WriteString(".fi\n.RE\n")
		}
		example = indented
		if line == "" {
			b.WriteString(".PP\n")
			continue
		}
		b.WriteString(manText(strings.TrimPrefix(line, "    ")) + "\n")
	}
	if example {
		b.WriteString(".fi\n.RE\n")
	}
}

// manEscapes are the characters that have a meaning in roff.
var manEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", "\\`", "^", `\(ha`,
	"~", `\(ti`)

// manText escapes one line of text.
func manText(text string) string {
	text = manEscapes.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}

// lowerFirst begins a text with a lower-case letter, unless its first word is an abbreviation.
func lowerFirst(text string) string {
	if len(text) < 2 || text[1] < 'a' || text[1] > 'z' {
		return text
	}
	return strings.ToLower(text[:1]) + text[1:]
}
