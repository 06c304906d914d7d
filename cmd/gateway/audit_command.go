package main

import "github.com/spf13/cobra"

func auditCommand(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check audit files",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(auditVerifyCommand(c))
	return cmd
}
