package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every command has a page, and every flag is in the page of its command.
func TestManPagesHaveEveryCommandAndFlag(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if code, stdout, stderr := runCommand(t, "man", dir); code != 0 || stdout+stderr != "" {
		t.Fatalf("exit code %d, %s%s", code, stdout, stderr)
	}
	root := newCLI(stdio{os.Stdin, os.Stdout, os.Stderr}).command()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages := 0
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		if c.Hidden {
			return
		}
		pages++
		c.InitDefaultHelpFlag()
		name := strings.ReplaceAll(c.CommandPath(), " ", "-")
		text, err := os.ReadFile(filepath.Join(dir, name+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		page := strings.ReplaceAll(string(text), `\-`, "-")
		parts := []string{
			".TH " + strings.ToUpper(name) + " 1 ", ".SH NAME\n" + name + " - ", ".SH DESCRIPTION\n",
			".SH EXIT STATUS\n",
		}
		flags := 0
		addFlag := func(f *pflag.Flag) {
			flags++
			parts = append(parts, `\fB--`+f.Name+`\fR`)
			if f.Shorthand != "" {
				parts = append(parts, `\fB-`+f.Shorthand+`\fR`)
			}
		}
		c.NonInheritedFlags().VisitAll(addFlag)
		c.InheritedFlags().VisitAll(addFlag)
		if flags == 0 {
			t.Errorf("%s has no flags", name)
		}
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				parts = append(parts, ".B "+sub.CommandPath()+"\n")
			}
			visit(sub)
		}
		for _, part := range parts {
			if !strings.Contains(page, part) {
				t.Errorf("the page %s does not contain %q", name, part)
			}
		}
	}
	visit(root)
	if pages != len(files) || pages < 15 {
		t.Errorf("%d commands, %d pages", pages, len(files))
	}
}

func TestManText(t *testing.T) {
	var b strings.Builder
	writeManText(&b, "A \\ b.\n\n    gateway -c x\n    .hidden\n\nEnd 'x'.")
	want := "A \\e b.\n.PP\n.PP\n.RS 4\n.nf\ngateway \\-c x\n\\&.hidden\n.fi\n.RE\n.PP\nEnd \\(aqx\\(aq.\n"
	if b.String() != want {
		t.Errorf("%q\nwant %q", b.String(), want)
	}
}
