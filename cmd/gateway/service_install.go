package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"mcpgateway/internal/config"
	"mcpgateway/internal/osservice"
	"mcpgateway/internal/text"
)

// A serviceInstall is a run of gateway service install with its flags.
type serviceInstall struct {
	*serviceFlags
	runAs              string
	dryRun, force, now bool
}

func serviceInstallCommand(s *serviceFlags) *cobra.Command {
	i := &serviceInstall{serviceFlags: s}
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the gateway as a service that starts by itself",
		Long: `install checks the configuration, writes the description of the service with the flags
of this command, and enables the service. It does not start it, unless --now is given. It may
be repeated, for example after a change of flags.

The service gets no variables of this shell, except PATH. Variables that the configuration
refers to belong into the file "env" in the folder of the configuration, in lines NAME=value
(systemd only), or into a file of env_file. The description of the service contains no secrets.

A service of the system runs as a user without rights, who can read only public files, unless
--run-as names another user.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return i.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&s.source.listen, "listen", "",
		"serve HTTP at `ADDR`, e.g. 127.0.0.1:7420 (default: listen of the configuration)")
	flags.StringVar(&i.runAs, "run-as", "", "the `USER` of a service of the system")
	flags.BoolVar(&i.dryRun, "dry-run", false, "print the description, and change nothing")
	flags.BoolVar(&i.force, "force", false,
		"replace a unit that gateway service install did not write")
	flags.BoolVar(&i.now, "now", false, "also start the service")
	return cmd
}

func (i *serviceInstall) run(ctx context.Context) error {
	d, err := i.define(ctx)
	if err != nil {
		return err
	}
	if i.dryRun {
		system := runtime.GOOS
		if d.Text(system) == "" {
			system = "linux"
		}
		_, err := fmt.Fprint(i.out, d.Text(system))
		return err
	}
	if strings.Contains(d.Executable, string(filepath.Separator)+"go-build") {
		return hintedError{fmt.Errorf("%s is a temporary file of go run", d.Executable),
			"install the gateway first: go install ./cmd/gateway"}
	}
	m, err := osservice.New(d)
	if err != nil {
		return i.explain(err)
	}
	result, err := m.Install(i.force)
	if err != nil {
		return i.explain(err)
	}
	i.report(d, m.Path(), result)
	if i.now {
		return i.start()
	}
	return nil
}

// report prints what was installed, and what to do next.
func (i *serviceInstall) report(d osservice.Spec, path string, r osservice.InstallResult) {
	done := map[osservice.InstallResult]string{
		osservice.Unchanged: "is installed already, with the same flags",
		osservice.Installed: "is installed, and starts by itself",
		osservice.Replaced:  "is installed with new flags",
	}[r]
	fmt.Fprintf(i.out, "the service %s %s\n", i.name, done)
	line := func(what, value string) { fmt.Fprintf(i.out, "  %-14s %s\n", what, value) }
	if path != "" {
		line("file", path)
	}
	line("configuration", d.Configuration)
	if runtime.GOOS == "linux" {
		line("variables", d.EnvironmentFile+" (optional; mode 0600)")
	}
	switch {
	case r == osservice.Replaced:
		line("to apply it", "gateway service stop"+i.flags()+" && gateway service start"+i.flags())
	case !i.now:
		line("to start it", "gateway service start"+i.flags())
	}
	if logs := i.logCommand(); logs != "" {
		line("log", logs)
	}
	if runtime.GOOS == "linux" && d.User {
		line("note", "it ends when you log out, unless you run: loginctl enable-linger")
	}
}

// define returns the description of the service. It returns an error if the service could not start
// with it.
func (i *serviceInstall) define(ctx context.Context) (d osservice.Spec, err error) {
	if i.runAs != "" && i.isUser() {
		return d, usageError{errors.New("--run-as is for a service of the system"), "add --system"}
	}
	if err := osservice.CheckName(i.name); err != nil {
		return d, usageErrorOf("gateway service install", err)
	}
	program, err := os.Executable()
	if err != nil {
		return d, err
	}
	for _, v := range []struct {
		flag     *string
		variable string
	}{{&i.source.path, "GATEWAY_CONFIG"}, {&i.source.listen, "GATEWAY_LISTEN"},
		{&i.source.state, "GATEWAY_STATE"}} {
		if *v.flag == "" { // the service will not have the variable
			*v.flag = os.Getenv(v.variable)
		}
	}
	l, variables, err := i.load(ctx)
	if err != nil {
		return d, err
	}
	if err := i.check(l, program, variables); err != nil {
		return d, err
	}
	d = osservice.Spec{
		Name: i.name, User: i.isUser(), RunAs: i.runAs, Executable: program,
		EnvironmentFile: variables, LogFile: i.logFile(),
		Configuration: absolutePath(l.Source), State: l.Config.StateDir,
		Arguments: []string{"serve", "--config", absolutePath(l.Source)},
	}
	if d.User || i.runAs != "" || runtime.GOOS == "darwin" {
		d.SearchPath = absoluteFolders(os.Getenv("PATH"))
	}
	if !d.User && i.runAs == "" && runtime.GOOS == "linux" && i.source.state == "" &&
		l.Config.State == "" {
		d.State = "/var/lib/private/" + i.name // StateDirectory= of systemd
	}
	state := i.source.state
	if state != "" && state != config.PathNone {
		state = absolutePath(state)
	}
	for _, f := range [][2]string{{"--listen", i.source.listen}, {"--state", state},
		{"--log-level", i.source.logLevel}, {"--log-format", i.source.logFormat}} {
		if f[1] != "" {
			d.Arguments = append(d.Arguments, f[0], f[1])
		}
	}
	return d, nil
}

// load loads the configuration with the variables that the service will have: PATH, those of the
// user, and those in the file variables beside the configuration.
func (i *serviceInstall) load(ctx context.Context) (l *config.Loaded, variables string, err error) {
	o := i.source.options(ctx, i.source.path, false, true)
	kept := map[string]bool{"PATH": true, "HOME": true, "USER": true, "LOGNAME": true,
		"SHELL": true, "LANG": true, "XDG_RUNTIME_DIR": true, "USERPROFILE": true,
		"SYSTEMROOT": true, "APPDATA": true, "LOCALAPPDATA": true}
	found, err := config.Load(config.Options{Path: i.source.path, Flags: o.Flags,
		Approve: o.Approve, RequiredKeys: []string{}})
	if err != nil {
		return nil, "", err
	}
	if found.Source == "" {
		return nil, "", usageError{errors.New("no configuration found"),
			"write one, for example with gateway import -o ~/.config/mcp-gateway/config.yaml, " +
				"or name it with --config"}
	}
	variables = filepath.Join(filepath.Dir(absolutePath(found.Source)), "env")
	own := make(map[string]string)
	if data, err := os.ReadFile(variables); err == nil && runtime.GOOS == "linux" {
		if own, err = config.ParseEnvFile(data); err != nil {
			return nil, "", fmt.Errorf("%s%w", variables, err)
		}
	}
	o.Path, o.Local, o.VariableNames = found.Source, found.Local, nil
	o.Env = func(name string) (string, bool) {
		if value, ok := own[name]; ok || !kept[name] {
			return value, ok
		}
		return os.LookupEnv(name)
	}
	if l, err = loadFrom(o); err != nil {
		fmt.Fprintf(i.err, "gateway: the service gets no variables of this shell; it reads %s\n",
			variables)
	}
	return l, variables, err
}

// check returns an error if the service could not start with the configuration. It prints a warning
// for each backend that could not be started.
func (i *serviceInstall) check(l *config.Loaded, program, variables string) error {
	if l.Config.Listen == "" {
		return usageError{errors.New("the configuration has no listen, and a service serves HTTP"),
			"add --listen 127.0.0.1:7420, or listen: to the configuration"}
	}
	for _, b := range l.Config.Backends {
		if b.Enabled && b.Misconfigured != "" {
			fmt.Fprintf(i.err, "gateway: backend %s will not start: %s\n", b.Name,
				escapeControls(b.Misconfigured))
			fmt.Fprintf(i.err, "hint: variables of the service belong into %s\n",
				text.ShellWord(variables))
		}
	}
	if i.isUser() || i.runAs != "" || runtime.GOOS != "linux" {
		return nil
	}
	for _, folder := range []string{"/root/", "/home/", "/tmp/", "/var/tmp/"} {
		if strings.HasPrefix(program, folder) {
			return hintedError{fmt.Errorf("%s: the service, which runs as a user without rights, "+
				"cannot start it", program),
				"move it to /usr/local/bin, or choose a user with --run-as"}
		}
	}
	info, err := os.Stat(l.Source)
	if err != nil {
		return err
	}
	if info.Mode()&0o004 == 0 || strings.HasPrefix(absolutePath(l.Source), "/root/") {
		return hintedError{fmt.Errorf("%s: the service, which runs as a user without rights, cannot "+
			"read it", l.Source), "move it to /etc/mcp-gateway and chmod 0644 it (secrets belong " +
			"into the file env beside it), or choose a user with --run-as"}
	}
	return nil
}

// absoluteFolders returns the folders of a search path that are absolute.
func absoluteFolders(list string) string {
	var all []string
	for _, folder := range filepath.SplitList(list) {
		if filepath.IsAbs(folder) {
			all = append(all, folder)
		}
	}
	return strings.Join(all, string(filepath.ListSeparator))
}
