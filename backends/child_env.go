package backends

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
)

// minimalEnv names the variables of the gateway that every child gets. Other variables are passed
// on only if inherit_env names them, because they may contain secrets.
var minimalEnv = map[string][]string{
	"windows": {
		"PATH", "PATHEXT", "SYSTEMROOT", "SYSTEMDRIVE", "COMSPEC", "TEMP", "TMP", "USERNAME",
		"USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA",
		"PROGRAMFILES", "PROCESSOR_ARCHITECTURE",
	},
	"unix": {
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
		"TERM", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
		"XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS",
	},
}

// childEnv returns the whole environment of a child: minimalEnv, the inherited variables, the
// variables shared by all children, and the configured variables in set. Later values replace
// earlier ones. A variable whose name contains a NUL byte is left out.
func childEnv(inherit []string, shared, set map[string]string) []string {
	names := minimalEnv["unix"]
	if runtime.GOOS == "windows" {
		names = minimalEnv["windows"]
	}
	env := make(map[string]string)
	for _, name := range slices.Concat(names, inherit) {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	maps.Copy(env, shared)
	maps.Copy(env, set)
	all := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if !strings.Contains(name, "\x00") {
			all = append(all, name+"="+env[name])
		}
	}
	return all
}
