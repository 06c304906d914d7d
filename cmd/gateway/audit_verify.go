package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mcpgateway/internal/auditchain"
	"mcpgateway/internal/auditfile"
	"mcpgateway/internal/config"
)

// auditVerifyCommand returns the command that verifies the chain of audit records.
func auditVerifyCommand(c *cli) *cobra.Command {
	var head string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [FILE...]",
		Short: "Check that no audit record was changed, removed or inserted",
		Long: `verify checks the records that a gateway with audit.chain: true has written: each contains
the hash of the record before. Without FILE, it reads the audit file of the configuration
and its former files. It names the file, line and time of each record that was changed,
removed, inserted or moved since; the exit code is 1 if there is one.

That the oldest records are missing is normal: audit.keep removes them. A chain shows
neither that records at its end were removed, nor that all of it was written again by
somebody who can write to the files. Therefore keep the head that verify prints where
they cannot write, and pass it later with --head: verify then checks that the records
up to that head are still the same.

    gateway audit verify
    gateway audit verify --head 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    gateway audit verify /mnt/archive/audit.jsonl*`,
		RunE: func(cmd *cobra.Command, files []string) error {
			report := &verifyReport{Findings: []auditchain.Finding{}}
			v, err := auditchain.NewChainVerifier(head, report.add)
			if err != nil {
				return usageErrorOf(cmd.CommandPath(), fmt.Errorf("--head: %w", err))
			}
			if err := verifyFiles(cmd.Context(), c, v, files, report); err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(c.out)
				e.SetIndent("", "  ")
				if err := e.Encode(report); err != nil {
					return err
				}
			} else {
				report.print(c.out, head != "")
			}
			switch {
			case report.Problems > 0:
				return errReported
			case report.Records == 0:
				return hintedError{errors.New("no record has a link: nothing is verified"),
					"with audit.chain: true the gateway links the records that it writes"}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&head, "head", "",
		"the `HASH` that an earlier verify has printed: the records up to it must be there")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// verifyFiles verifies the named files, or the files of the configuration.
func verifyFiles(ctx context.Context, c *cli, v *auditchain.ChainVerifier, files []string,
	report *verifyReport,
) error {
	opened, err := openForVerify(ctx, c, files)
	if err != nil {
		return err
	}
	defer func() {
		for _, file := range opened {
			file.Close()
		}
	}()
	for _, file := range opened {
		if err := ctx.Err(); err != nil {
			return errInterrupted
		}
		report.Files = append(report.Files, file.Path)
		in, err := file.Reader()
		if err != nil {
			v.Unreadable(file.Path, err)
			continue
		}
		v.Read(file.Path, cancellableReader{ctx, in})
		in.Close()
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	report.ChainResult = v.End()
	return nil
}

// openForVerify opens the named files, or the audit files of the configuration.
func openForVerify(ctx context.Context, c *cli, files []string) ([]*auditfile.OpenedFile, error) {
	if len(files) > 0 {
		return auditfile.OpenNamed(files)
	}
	loaded, err := c.source.load(ctx)
	if err != nil {
		return nil, err
	}
	path := loaded.Config.Audit.File
	if path == "" || path == config.PathNone {
		return nil, hintedError{errors.New("the configuration has no audit.file"),
			"name the files: gateway audit verify FILE..."}
	}
	opened, err := auditfile.OpenAll(path)
	if err == nil && len(opened) == 0 {
		err = fmt.Errorf("%s does not exist, and has no former files", path)
	}
	return opened, err
}

// maxFindings bounds the printed findings.
const maxFindings = 100

// A verifyReport is the output of verify.
type verifyReport struct {
	Files []string `json:"files"` // in the order of their records
	auditchain.ChainResult
	Findings []auditchain.Finding `json:"findings"`
	Omitted  int                  `json:"omitted"` // further findings
}

func (r *verifyReport) add(f auditchain.Finding) {
	if len(r.Findings) >= maxFindings {
		r.Omitted++
		return
	}
	r.Findings = append(r.Findings, f)
}

// print prints the report for people.
func (r *verifyReport) print(w io.Writer, headWanted bool) {
	for _, f := range r.Findings {
		place := f.File
		if f.Line > 0 {
			place = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		if f.Lines > 1 {
			place += fmt.Sprintf("-%d", f.Line+f.Lines-1)
		}
		if f.Time != "" {
			place += " (" + f.Time + ")"
		}
		kind := string(f.Kind)
		if f.Note {
			kind = "note"
		}
		fmt.Fprintf(w, "%s: %s: %s\n", escapeControls(place), kind, escapeControls(f.Text))
	}
	if r.Omitted > 0 {
		fmt.Fprintf(w, "%d further findings are not shown\n", r.Omitted)
	}
	if r.Records == 0 {
		return
	}
	conclusion := "no record was changed, removed or inserted"
	switch r.Problems {
	case 0:
	case 1:
		conclusion = "1 problem"
	default:
		conclusion = fmt.Sprintf("%d problems", r.Problems)
	}
	fmt.Fprintf(w, "%d linked records in %d files, numbers %d to %d: %s\n", r.Records,
		len(r.Files), r.First, r.Last, conclusion)
	if r.First > 1 {
		fmt.Fprintf(w, "records 1 to %d are not in the files, as after audit.keep\n", r.First-1)
	}
	if r.BeforeFirst > 0 {
		fmt.Fprintf(w, "%d lines before record %d have no link, and are not verified\n",
			r.BeforeFirst, r.First)
	}
	fmt.Fprintf(w, "head: %s\n", r.Head)
	if !headWanted {
		fmt.Fprintln(w, "keep the head elsewhere: only with --head, verify notices removed records "+
			"at the end, and a chain that was written again")
	}
}

// A cancellableReader fails when its context is done.
type cancellableReader struct {
	ctx context.Context
	io.Reader
}

func (c cancellableReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(p)
}
