package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"mcpgateway/backends"
	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/config"
	"mcpgateway/internal/config/clientimport"
	"mcpgateway/internal/config/pins"
	"mcpgateway/internal/doctor"
	"mcpgateway/internal/logging"
	"mcpgateway/internal/reload"
)

// A doctorRun is a run of gateway doctor.
type doctorRun struct {
	*cli
	mask   *logging.Mask
	found  []doctor.DoctorFinding
	loaded *config.Loaded // nil = the configuration is invalid
	file   string         // the configuration; "" = there is none
	data   []byte         // its content; nil = it cannot be read

	references []config.UsedReference
	stateDir   string
	running    []*adminapi.APIClient // of the gateways that answer

	failed   map[string]bool // whether a keyring or command that was read has failed
	failedMu sync.Mutex      // guards failed
}

func (r *doctorRun) add(s doctor.CheckedSubject, l doctor.Level, next, format string, args ...any) {
	r.found = append(r.found, doctor.DoctorFinding{
		Subject: s, Level: l, Text: fmt.Sprintf(format, args...), Next: next})
}

// checkAll runs all checks that start no backend. None of them depends on the result of another,
// except that an invalid configuration has no backends.
func (r *doctorRun) checkAll(ctx context.Context) {
	r.failed = make(map[string]bool)
	r.progress("the configuration")
	r.checkConfiguration(ctx)
	r.checkReferences()
	cfg := &config.Config{}
	if r.loaded != nil {
		cfg = r.loaded.Config
	}
	r.progress("programs")
	r.found = append(r.found, doctor.CheckPrograms(ctx, cfg.Backends)...)
	r.found = append(r.found, doctor.StateDirectory(r.stateDir)...)
	r.progress("running gateways")
	r.checkGateways(ctx)
	if r.loaded != nil {
		r.checkAddress(ctx, cfg)
		r.found = append(r.found, doctor.AuditFile(cfg.Audit.File)...)
		r.checkLock()
	}
	r.progress("clients")
	servers, errs := clientimport.Survey(clientimport.Options{
		IsGateway: func(url string) bool { return isGateway(ctx, url) },
	})
	r.found = append(r.found, doctor.CheckClients(ctx, servers, errs, cfg.Backends, version,
		versionOfGateway)...)
	r.progress("")
}

// progress shows on a terminal what is checked; "" = nothing.
func (r *doctorRun) progress(what string) {
	switch {
	case !isTerminal(r.err):
	case what == "":
		fmt.Fprint(r.err, "\r\033[K")
	default:
		fmt.Fprintf(r.err, "\r\033[Kchecking %s", what)
	}
}

// checkConfiguration loads the configuration. It asks the user nothing.
func (r *doctorRun) checkConfiguration(ctx context.Context) {
	o := r.source.options(ctx, r.source.path, false, false)
	r.recordErrors(o.Sources)
	places := config.SearchPaths(config.Options{})
	named, by := config.ExpandHome(r.source.path), "--config"
	if named == "" {
		named, by = config.ExpandHome(os.Getenv("GATEWAY_CONFIG")), "GATEWAY_CONFIG"
	}
	if r.file = named; named == "" {
		for _, place := range places {
			if _, err := os.Stat(place); err == nil {
				r.file = place
				break
			}
		}
	}
	loaded, err := loadFrom(o)
	if err == nil {
		r.loaded, r.file = loaded, loaded.Source
		r.mask.Add(config.Secrets(loaded.Config)...)
	}
	r.found = append(r.found, doctor.Places(named, by, places, r.file)...)
	if r.file != "" {
		r.data, _ = config.ReadFile(r.file)
	}
	r.stateDir = trustStateDir(r.source.state)
	if r.loaded != nil {
		r.stateDir = r.loaded.Config.StateDir
		for _, w := range r.loaded.Warnings {
			r.add(doctor.Configuration, doctor.Warning, "", "%s", w)
		}
		return
	}
	var all config.Errors
	if errors.As(err, &all) {
		for line, hint := range all.Hinted() {
			r.add(doctor.Configuration, doctor.Problem, hint, "%s", line)
		}
		return
	}
	r.add(doctor.Configuration, doctor.Problem, hintOf(err), "%s", err.Error())
}

// trustStateDir returns the state directory of an invalid configuration; state is the value of
// --state.
func trustStateDir(state string) string {
	if state == "" {
		state = os.Getenv("GATEWAY_STATE")
	}
	if state == config.PathNone {
		return ""
	}
	return absolutePath(config.StateDirOf(state, os.LookupEnv))
}

// recordErrors makes s record which references cannot be read.
func (r *doctorRun) recordErrors(s *config.Sources) {
	record := func(shown string, err error) {
		r.failedMu.Lock()
		defer r.failedMu.Unlock()
		r.failed[shown] = r.failed[shown] || err != nil
	}
	ring, command := s.Keyring, s.Command
	s.Keyring = func(name string) (string, error) {
		value, err := ring(name)
		record("${keyring:"+name+"}", err)
		return value, err
	}
	s.Command = func(words []string, variables map[string]string) (string, error) {
		value, err := command(words, variables)
		shown := words[0]
		if len(words) > 1 {
			shown += " …"
		}
		record("${command:"+shown+"}", err)
		return value, err
	}
}

// checkReferences checks the references of the file.
func (r *doctorRun) checkReferences() {
	if r.data == nil {
		return
	}
	all, err := config.References(r.file, r.data)
	if err != nil {
		return // the load has the same error
	}
	r.references = all
	envFiles := map[string]map[string]string{}
	addFile := func(backend, path string) {
		if data, err := config.ReadFile(path); err == nil && path != "" {
			envFiles[backend], _ = config.ParseEnvFile(data)
		}
	}
	if r.loaded != nil {
		addFile("", r.loaded.Config.EnvFile)
		for _, b := range r.loaded.Config.Backends {
			addFile(b.Name, b.EnvFile)
		}
	}
	isSet := func(name, backend string) bool {
		value := os.Getenv(name)
		if value == "" {
			value = envFiles[backend][name]
		}
		if value == "" {
			value = envFiles[""][name]
		}
		return value != ""
	}
	path := func(written string) string {
		path := config.ExpandHome(written)
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(r.file), path)
		}
		return path
	}
	failed := func(shown string) (failed, known bool) {
		failed, known = r.failed[shown]
		return failed, known
	}
	findings := doctor.CheckReferences(all, isSet, path, failed)
	for i := range findings {
		if r.loaded == nil && findings[i].Level == doctor.Problem {
			// env_file of an invalid configuration is not read; the load reports what it needs
			findings[i].Level = doctor.Warning
		}
	}
	r.found = append(r.found, findings...)
}

// checkGateways asks the gateways in the state directory. It leaves the files of those that have
// ended.
func (r *doctorRun) checkGateways(ctx context.Context) {
	if r.stateDir == "" {
		return
	}
	all, err := adminapi.FindGateways(r.stateDir)
	if err != nil {
		r.add(doctor.Gateways, doctor.Problem, "make it readable", "%s: %s",
			adminapi.Dir(r.stateDir), config.SystemMessage(err))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*statusTimeout)
	defer cancel()
	var alive []adminapi.Registered
	for _, g := range all {
		if g.HasEnded(ctx) {
			r.add(doctor.Gateways, doctor.Note, "gateway status removes it",
				"gateway %s has ended, and its admin socket is left", g.ID)
			continue
		}
		alive = append(alive, g)
		r.running = append(r.running, g.Client())
	}
	for _, s := range statusOf(ctx, alive) {
		switch {
		case s.Error != "":
			r.add(doctor.Gateways, doctor.Warning, "end the process and start the gateway again",
				"gateway %s %s", s.ID, s.Error)
		case s.Gateway.Version != version:
			r.add(doctor.Gateways, doctor.Warning, "restart this gateway",
				"gateway %s (process %d) has version %s; this program is %s", s.ID, s.Gateway.PID,
				s.Gateway.Version, version)
		case s.Configuration.Problem != "":
			r.add(doctor.Gateways, doctor.Problem, "correct the file, then run gateway reload",
				"gateway %s has not loaded its configuration: %s", s.ID, s.Configuration.Problem)
		default:
			r.add(doctor.Gateways, doctor.OK, "", "gateway %s (process %d) serves %s", s.ID,
				s.Gateway.PID, whom(s.GatewayStatus))
		}
	}
	if len(all) == 0 {
		r.add(doctor.Gateways, doctor.OK, "", "no gateway runs")
	}
}

// checkAddress checks the addresses and the certificate of the HTTP servers.
func (r *doctorRun) checkAddress(ctx context.Context, cfg *config.Config) {
	if _, err := reload.LoadCertificate(r.loaded, cfg.TLS); err != nil {
		r.add(doctor.Address, doctor.Problem, hintOf(err), "%s", err.Error())
	}
	for _, at := range []struct{ key, address string }{
		{"listen", cfg.Listen}, {"admin.listen", cfg.Admin.Listen},
	} {
		if _, _, err := net.SplitHostPort(at.address); at.address == "" || err != nil {
			continue
		}
		ln, err := net.Listen("tcp", at.address)
		switch {
		case err == nil:
			ln.Close()
			r.add(doctor.Address, doctor.OK, "", "%s of %s is free", at.address, at.key)
		case !errors.Is(err, syscall.EADDRINUSE):
			r.add(doctor.Address, doctor.Problem, "change "+at.key, "%s of %s: %s", at.address,
				at.key, err.Error())
		case isGateway(ctx, "http://"+at.address) || isGateway(ctx, "https://"+at.address):
			r.add(doctor.Address, doctor.OK, "", "a gateway serves %s of %s", at.address, at.key)
		case at.key == "admin.listen" && len(r.running) > 0:
			r.add(doctor.Address, doctor.Note, "gateway status", "%s of %s is in use, perhaps by a gateway",
				at.address, at.key)
		default:
			r.add(doctor.Address, doctor.Problem, "end the other program, or change "+at.key,
				"another program uses %s of %s", at.address, at.key)
		}
	}
}

// checkLock checks the lock file.
func (r *doctorRun) checkLock() {
	path := pins.PathOf(r.file)
	if path == "" {
		return
	}
	if _, err := pins.Read(path); err != nil {
		r.add(doctor.Approvals, doctor.Problem, hintOf(err), "%s", err.Error())
		return
	}
	r.add(doctor.Approvals, doctor.OK, "", "%s can be read, or does not exist", path)
}

// versionOfGateway returns the version of a gateway's program; "" = it is not known.
func versionOfGateway(ctx context.Context, program string) string {
	if own, err := os.Executable(); err == nil && isSameFile(own, program) {
		return version
	}
	text, err := doctor.Output(ctx, program, "version", "--json")
	var b build
	if err != nil || json.Unmarshal([]byte(text), &b) != nil {
		return ""
	}
	return b.Version
}

// checkBackends starts each backend once. It writes no audit record, and backends store nothing.
func (r *doctorRun) checkBackends(ctx context.Context, timeout startTimeout) {
	if r.loaded == nil || r.loaded.Source == "" {
		return
	}
	mode := runMode{noRestart: true, ignoreCache: true, noRecords: true}
	noAudit := func(cfg *config.Config) { cfg.Audit.File = config.PathNone }
	a, err := r.openLoaded(r.loaded, mode, r.source.quietLog, stdioOnly, noAudit)
	if err != nil {
		r.add(doctor.Backends, doctor.Problem, hintOf(err), "%s", err.Error())
		return
	}
	r.mask = a.mask
	o := &oneShot{app: a, stdio: r.stdio, timeout: timeout}
	err = o.run(ctx, func(ctx context.Context) error {
		if err := o.startBackends(ctx); err != nil {
			return err
		}
		for _, s := range o.backends.Status() {
			r.addBackend(o, s)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errInterrupted) {
		r.add(doctor.Backends, doctor.Problem, "", "%s", err.Error())
	}
}

// addBackend adds the findings about a backend that was started.
func (r *doctorRun) addBackend(o *oneShot, s backends.Status) {
	switch {
	case s.State == backends.Disabled:
		r.add(doctor.Backends, doctor.OK, "", "%s is disabled", s.Name)
		return
	case s.State == backends.NeedsLogin:
		r.add(doctor.Backends, doctor.Problem, "gateway login "+s.Name, "%s needs a login: %s",
			s.Name, o.problemText(s))
		return
	case s.State == backends.Misconfigured:
		r.add(doctor.Backends, doctor.Problem, "correct the entry of "+s.Name+" in "+r.file,
			"%s is misconfigured: %s", s.Name, o.problemText(s))
		return
	case !isHealthy(s):
		next := "check the url of " + s.Name + ", and that its server runs"
		if o.isProgram(s.Name) {
			next = "gateway check --log-level debug" + r.source.flag()
		}
		r.add(doctor.Backends, doctor.Problem, next, "%s failed: %s", s.Name, o.problemText(s))
		return
	}
	r.add(doctor.Backends, doctor.OK, "", "%s works (%s)", s.Name,
		s.StartupTime.Round(time.Millisecond))
	if len(s.Pins.New)+len(s.Pins.Changed) > 0 {
		r.add(doctor.Approvals, doctor.Warning, "gateway approve "+s.Name,
			"%s has %d new and %d changed tools that are not approved", s.Name, len(s.Pins.New),
			len(s.Pins.Changed))
	}
	s.Pins.New, s.Pins.Changed = nil, nil
	if text := remarks(o.mask, s); text != "" {
		r.add(doctor.Backends, doctor.Note, "", "%s: %s", s.Name, text)
	}
}
