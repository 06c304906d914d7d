package containers

import (
	"path/filepath"
	"slices"
	"strings"

	"mcpgateway/internal/lazy"
)

// A containerRun is a command line that runs a container in the foreground. The server is process 1
// of the container. The container belongs to the engine and can outlive the process that the
// gateway starts.
type containerRun struct {
	// the command line up to the word run, for other commands to the same engine
	engine  []string
	program string // the word in it that names the engine
	options int    // index in args of the first option of run
	cidfile string // set by the user, "" = none
	remove  bool   // --rm is given
}

// engines are the container engines whose command lines are parsed.
var engines = []string{"docker", "podman", "podman-remote", "nerdctl"}

// elevationValues are the options of sudo and doas that take the next word as their value.
var elevationValues = []string{"-u", "-g", "-h", "-p", "-C", "-r", "-t", "-T", "-D", "-R",
	"--user", "--group", "--host", "--prompt", "--chdir", "--role", "--type"}

// engineValues are the options of an engine itself, before its command, that take the next word
// as their value.
var engineValues = []string{
	"--config", "--context", "-c", "--host", "-H", "--log-level", "-l", "--tlscacert", "--tlscert",
	"--tlskey", "--url", "--identity", "--connection", "--root", "--runroot", "--runtime",
	"--runtime-flag", "--storage-driver", "--storage-opt", "--module", "--cgroup-manager",
	"--conmon", "--events-backend", "--hooks-dir", "--imagestore", "--network-cmd-path",
	"--network-config-dir", "--namespace", "-n", "--out", "--ssh", "--tmpdir", "--volumepath",
	"--db-backend", "--cpu-profile", "--memory-profile", "--address", "-a", "--snapshotter",
	"--cni-path", "--cni-netconfpath", "--data-root", "--hosts-dir", "--host-gateway-ip",
	"--bridge-ip",
}

// runFlags are the options of run that take no value. All other options are assumed to take a
// value, so the list must be complete: if a flag were missing here, the image would be read as its
// value, and arguments of the server as options.
var runFlags = []string{
	"--detach", "--disable-content-trust", "--help", "--init", "--interactive", "--no-healthcheck",
	"--oom-kill-disable", "--privileged", "--publish-all", "--quiet", "--read-only", "--rm",
	"--sig-proxy", "--tty", "--use-api-socket", "--env-host", "--http-proxy", "--no-hostname",
	"--no-hosts", "--passwd", "--read-only-tmpfs", "--replace", "--rmi", "--rootfs", "--tls-verify",
	"--unsetenv-all",
}

// shortFlags are the short options of run that take no value.
const shortFlags = "ditPqh"

// readRun parses a command line; ok is false if it does not run a container.
func readRun(command string, args []string) (r containerRun, ok bool) {
	i, ok := findEngine(command, args)
	if !ok {
		return r, false
	}
	r.program = append([]string{command}, args...)[i]
	i = skipOptions(args, i, engineValues)
	r.engine = append([]string{command}, args[:i]...)
	if i < len(args) && args[i] == "container" {
		i++
	}
	if i == len(args) || args[i] != "run" {
		return r, false
	}
	r.options = i + 1
	r.readOptions(args[i+1:])
	return r, true
}

// findEngine returns the index in args of the first word after the name of an engine. It reports
// false unless command is an engine, or sudo or doas followed by an engine.
func findEngine(command string, args []string) (int, bool) {
	if slices.Contains(engines, programName(command)) {
		return 0, true
	}
	if name := programName(command); name != "sudo" && name != "doas" {
		return 0, false
	}
	i := skipOptions(args, 0, elevationValues)
	if i == len(args) || !slices.Contains(engines, programName(args[i])) {
		return 0, false
	}
	return i + 1, true
}

// programName returns the name of a program in lower case, without its directory and without .exe.
func programName(path string) string {
	name := strings.ToLower(path[strings.LastIndexAny(path, `/\`)+1:])
	return strings.TrimSuffix(name, ".exe")
}

// skipOptions returns the index of the first word from i on that is neither an option nor the value
// of an option; -- ends the options. values are the options that take the next word as their value.
func skipOptions(args []string, i int, values []string) int {
	for ; i < len(args) && strings.HasPrefix(args[i], "-"); i++ {
		if args[i] == "--" {
			return i + 1
		}
		if slices.Contains(values, args[i]) {
			i++
		}
	}
	return min(i, len(args))
}

// readOptions parses the options of run, up to the name of the image.
func (r *containerRun) readOptions(args []string) {
	for i := 0; i < len(args) && len(args[i]) > 1 && args[i][0] == '-' && args[i] != "--"; i++ {
		name, value, attached := strings.Cut(args[i], "=")
		switch {
		case !strings.HasPrefix(name, "--"):
			// In -ite X, the last letter takes X as its value; in -eX, the value is X.
			flags := strings.TrimLeft(name[1:], shortFlags)
			if len(flags) == 1 && !attached {
				i++
			}
		case slices.Contains(runFlags, name):
			if name == "--rm" {
				r.remove = !attached || value == "true"
			}
		default:
			if !attached {
				i++
				if i < len(args) {
					value = args[i]
				}
			}
			if name == "--cidfile" {
				r.cidfile = value
			}
		}
	}
}

// withOption returns args with an option of run added.
func (r containerRun) withOption(args []string, option ...string) []string {
	return slices.Concat(args[:r.options], option, args[r.options:])
}

// isConfined reports whether the engine at path is a snap, which cannot write to the state
// directory because it has no access to hidden directories.
func isConfined(path string) bool {
	if strings.HasPrefix(path, "/snap/") {
		return true
	}
	file, err := filepath.EvalSymlinks(path)
	return err == nil && filepath.Base(file) == "snap"
}

// startsContainer matches a shell command that seems to start a container.
var startsContainer = lazy.Regexp(`\b(docker|podman|nerdctl)\b.*\b(run|up)\b`)

// runsHiddenContainer reports whether a command line seems to run a container in a way that readRun
// does not support, such as by compose or in a shell.
func runsHiddenContainer(command string, args []string) bool {
	if _, ok := readRun(command, args); ok {
		return false
	}
	if i, ok := findEngine(command, args); ok {
		i = skipOptions(args, i, engineValues)
		return i < len(args) && args[i] == "compose" && slices.Contains(args[i:], "run")
	}
	switch programName(command) {
	case "sh", "bash", "zsh", "dash", "cmd", "env", "wsl", "docker-compose", "podman-compose",
		"sudo", "doas", "nohup", "flatpak-spawn":
		return startsContainer().MatchString(programName(command) + " " + strings.Join(args, " "))
	}
	return false
}
