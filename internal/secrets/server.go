package secrets

import (
	"slices"
	"strings"

	"mcpgateway/internal/lazy"
)

// FindInServerURL finds the secrets in the URL of a server. UUIDs in the URL count as secrets,
// because they may permit the use of the server.
func FindInServerURL(name, text string) []Secret {
	parts := Find(name, text)
	for _, at := range serverUUID().FindAllStringIndex(text, -1) {
		p := Secret{From: at[0], To: at[1], Name: "path"}
		overlaps := func(o Secret) bool { return o.From < p.To && p.From < o.To }
		if !slices.ContainsFunc(parts, overlaps) {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(a, b Secret) int { return a.From - b.From })
	return parts
}

var serverUUID = lazy.Regexp(`[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`)

// IsShellVariable reports whether a variable is set by the shells of all users and contains no
// secret. The log may contain its value in many paths.
func IsShellVariable(variable string) bool {
	switch variable {
	case "HOME", "USERPROFILE", "USER", "USERNAME", "LOGNAME", "PWD", "PATH", "SHELL", "LANG",
		"TMPDIR", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA", "HOSTNAME", "TERM",
		"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "DESKTOP_SESSION", "SESSION_MANAGER":
		return true
	}
	return strings.HasPrefix(variable, "XDG_")
}
