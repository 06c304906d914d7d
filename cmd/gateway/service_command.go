package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/internal/osservice"
	"mcpgateway/internal/text"
)

func serviceCommand(c *cli) *cobra.Command {
	s := &serviceFlags{cli: c}
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Run the gateway as a service of the operating system",
		Long: `service installs the gateway as a service that serves HTTP: a unit of systemd, a job of
launchd, or a service of Windows. Without --system it is a service of the current user, except
for root and on Windows.

    gateway service install --listen 127.0.0.1:7420
    gateway service start
    gateway service status
    gateway service uninstall`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	cmd.PersistentPreRun = func(*cobra.Command, []string) {
		if c.disown != nil {
			c.disown() // the library starts child processes
		}
	}
	flags := cmd.PersistentFlags()
	flags.StringVar(&s.name, "name", osservice.DefaultName, "the `NAME` of the service")
	flags.BoolVar(&s.user, "user", false, "a service of the current user (default unless root)")
	flags.BoolVar(&s.system, "system", false, "a service of the system (default for root)")
	cmd.MarkFlagsMutuallyExclusive("user", "system")
	completeFlag(cmd, "name", func() []string { return nil })
	cmd.AddCommand(serviceInstallCommand(s), serviceUninstallCommand(s), serviceStartCommand(s),
		serviceStopCommand(s), serviceStatusCommand(s))
	for _, sub := range cmd.Commands() {
		sub.Args = asUsageErrors(sub.Args)
	}
	return cmd
}

// serviceFlags are the flags of all commands of service.
type serviceFlags struct {
	*cli
	name         string
	user, system bool
}

// isUser reports whether the service is one of the current user.
func (s *serviceFlags) isUser() bool {
	if s.user || s.system {
		return s.user
	}
	return runtime.GOOS != "windows" && os.Geteuid() != 0
}

// flags returns the flags that select this service, as a part of a command line.
func (s *serviceFlags) flags() (words string) {
	switch {
	case s.user:
		words = " --user"
	case s.system:
		words = " --system"
	}
	if s.name != osservice.DefaultName {
		words += " --name " + text.ShellWord(s.name)
	}
	return words
}

// manager returns the manager of the service.
func (s *serviceFlags) manager() (*osservice.Manager, error) {
	m, err := osservice.New(osservice.Spec{Name: s.name, User: s.isUser()})
	return m, s.explain(err)
}

// explain adds a hint to an error of the package osservice.
func (s *serviceFlags) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, osservice.ErrNotInstalled):
		return hintedError{fmt.Errorf("the service %s is not installed", s.name),
			"install it with gateway service install" + s.flags() +
				"; services of users and of the system are separate: --user, --system"}
	case errors.Is(err, osservice.ErrForeign):
		return hintedError{err, "choose another --name, or replace it with --force"}
	case errors.Is(err, osservice.ErrNoManager):
		return hintedError{err, "start gateway serve --listen ADDR with the service manager that you " +
			"use; gateway service install --dry-run prints a unit of systemd as an example"}
	case !s.isUser() && runtime.GOOS != "windows" && os.Geteuid() != 0:
		return hintedError{err, "a service of the system needs root: use sudo, or --user"}
	case s.isUser() && runtime.GOOS == "linux" && os.Getenv("XDG_RUNTIME_DIR") == "":
		return hintedError{err, "XDG_RUNTIME_DIR is not set: log in as this user, not with su or sudo"}
	}
	return err
}

func serviceUninstallCommand(s *serviceFlags) *cobra.Command {
	force := false
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Stop the service and remove it",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			m, err := s.manager()
			if err != nil {
				return err
			}
			path := m.Path()
			remains, err := m.Uninstall(force)
			if err != nil {
				return s.explain(err)
			}
			fmt.Fprintf(s.out, "removed the service %s\n", s.name)
			if path != "" {
				fmt.Fprintf(s.out, "  removed        %s\n", path)
			}
			for _, left := range [][2]string{
				{"configuration", remains.Configuration}, {"state", remains.State},
			} {
				if left[1] != "" && pathExists(left[1]) {
					fmt.Fprintf(s.out, "  %-13s  remains; to remove it: rm -r %s\n", left[0],
						text.ShellWord(left[1]))
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "remove a unit that gateway service install did not write")
	return cmd
}

func pathExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func serviceStartCommand(s *serviceFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "start",
		Short: "Start the service, and wait until it is ready",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return s.start() },
	}
}

// start starts the service and prints its state.
func (s *serviceFlags) start() error {
	m, err := s.manager()
	if err != nil {
		return err
	}
	if err := m.Start(); err != nil {
		if hinted, ok := errors.AsType[hintedError](s.explain(err)); ok {
			return hinted
		}
		return hintedError{err, "the log has the reason: " + s.logCommand()}
	}
	return s.printStatus(m, false)
}

func serviceStopCommand(s *serviceFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "stop",
		Short: "Stop the service, and wait until its backends have ended",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			m, err := s.manager()
			if err != nil {
				return err
			}
			if err := m.Stop(); err != nil {
				return s.explain(err)
			}
			_, err = fmt.Fprintf(s.out, "%s: stopped\n", s.name)
			return err
		},
	}
}

func serviceStatusCommand(s *serviceFlags) *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print whether the service runs: exit code 0 or 1",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			m, err := s.manager()
			if err != nil {
				return err
			}
			return s.printStatus(m, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	return cmd
}

// printStatus prints the state of the service. It returns errReported if the service does not run.
func (s *serviceFlags) printStatus(m *osservice.Manager, asJSON bool) error {
	st, err := m.Status()
	if err != nil {
		return s.explain(err)
	}
	failure := error(nil)
	if !st.Running {
		failure = errReported
	}
	if asJSON {
		line, err := json.Marshal(st)
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "%s\n", line)
		return failure
	}
	line := s.name + ": " + st.State
	if st.Since != nil {
		line += fmt.Sprintf(" since %s (%v)", st.Since.Local().Format(time.DateTime),
			time.Since(*st.Since).Round(time.Second))
	}
	if st.PID > 0 {
		line += fmt.Sprintf(", pid %d", st.PID)
	}
	program, replaced := osservice.ProgramOf(st.PID)
	if own, err := os.Executable(); err == nil && program == own && !replaced {
		line += ", version " + version
	}
	if st.Result != "" {
		line += ", result " + st.Result
	}
	fmt.Fprintln(s.out, line)
	if st.Text != "" {
		fmt.Fprintf(s.out, "  %s\n", forWriter(s.out, st.Text))
	}
	if replaced {
		fmt.Fprintf(s.out, "  %s was replaced after the start: restart the service to use it\n", program)
	}
	if !st.Enabled {
		fmt.Fprintf(s.out, "  it does not start by itself: gateway service install%s\n", s.flags())
	}
	if st.File != "" {
		fmt.Fprintf(s.out, "  file  %s\n", st.File)
	}
	if logs := s.logCommand(); logs != "" {
		fmt.Fprintf(s.out, "  logs  %s\n", logs)
	}
	return failure
}

// logCommand returns the command that shows the log of the service.
func (s *serviceFlags) logCommand() string {
	switch {
	case runtime.GOOS == "darwin":
		return "tail -f " + text.ShellWord(s.logFile())
	case runtime.GOOS != "linux":
		return ""
	case s.isUser():
		return "journalctl --user -u " + s.name + " -f"
	}
	return "journalctl -u " + s.name + " -f"
}

// logFile returns the file for the log of the service, with launchd.
func (s *serviceFlags) logFile() string {
	folder := "/Library/Logs"
	if home, err := os.UserHomeDir(); err == nil && s.isUser() {
		folder = filepath.Join(home, folder)
	}
	return filepath.Join(folder, s.name+".log")
}
