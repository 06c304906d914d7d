package osservice

import (
	"fmt"
	"path/filepath"
	"strings"
)

// These are the beginnings of the lines of a unit that Uninstall reads.
const (
	configurationMark = "# Configuration: "
	stateMark         = "# State: "
)

// unit returns the unit of systemd.
func (d Spec) unit() string {
	var b strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n", values...) }
	line("# " + mark + " To change it, run that command again, or: systemctl edit " + d.Name)
	line("%s%s", configurationMark, d.Configuration)
	line("%s%s", stateMark, d.State)
	line("[Unit]")
	line("Description=MCP gateway (%s)", d.Name)
	if !d.User {
		line("Wants=network-online.target")
		line("After=network-online.target")
	}
	line("# With an invalid configuration it is started five times.")
	line("StartLimitIntervalSec=60")
	line("StartLimitBurst=5")
	line("")
	line("[Service]")
	line("Type=notify")
	words := []string{unitWord(d.Executable)}
	for _, a := range d.Arguments {
		words = append(words, strings.ReplaceAll(unitWord(a), "$", "$$"))
	}
	line("ExecStart=%s", strings.Join(words, " "))
	line("ExecReload=/bin/kill -HUP $MAINPID")
	if d.EnvironmentFile != "" {
		line("EnvironmentFile=-%s", unitPath(d.EnvironmentFile))
	}
	if d.SearchPath != "" {
		line("Environment=%s", unitWord("PATH="+d.SearchPath))
	}
	switch {
	case d.User:
	case d.RunAs != "":
		line("User=%s", unitPath(d.RunAs))
	default:
		line("DynamicUser=yes")
		line("StateDirectory=%s", d.Name)
		line("Environment=HOME=%%S/%s", d.Name)
	}
	line("# The gateway ends its backends. systemd ends what is left after that.")
	line("KillMode=mixed")
	line("TimeoutStopSec=30")
	line("WatchdogSec=60")
	line("Restart=on-failure")
	line("RestartSec=2")
	line("")
	line("[Install]")
	if d.User {
		line("WantedBy=default.target")
	} else {
		line("WantedBy=multi-user.target")
	}
	return b.String()
}

// unitPath escapes a value for systemd that is not split into words.
func unitPath(text string) string { return strings.ReplaceAll(text, "%", "%%") }

// unitEscapes are the characters that have a meaning in a quoted word.
var unitEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%")

// unitWord escapes one word of Environment= or, apart from $, of a command line. See
// systemd.exec(5).
func unitWord(text string) string {
	escaped := unitEscapes.Replace(text)
	if escaped == text && text != "" && !strings.ContainsAny(text, " \t';") {
		return text
	}
	return `"` + escaped + `"`
}

// plistEscapes are the characters that have a meaning in XML.
var plistEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;")

// job returns the property list of launchd. launchd starts the service again unless it ends with
// exit code 0.
func (d Spec) job() string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- ` + mark + ` -->
<plist version="1.0">
<dict>
`)
	text := func(s string) string { return "<string>" + plistEscapes.Replace(s) + "</string>" }
	entry := func(key, value string) { fmt.Fprintf(&b, "\t<key>%s</key>\n\t%s\n", key, value) }
	entry("Label", text(d.Name))
	words := "<array>\n\t\t" + text(d.Executable) + "\n"
	for _, a := range d.Arguments {
		words += "\t\t" + text(a) + "\n"
	}
	entry("ProgramArguments", words+"\t</array>")
	if d.SearchPath != "" {
		entry("EnvironmentVariables",
			"<dict>\n\t\t<key>PATH</key>\n\t\t"+text(d.SearchPath)+"\n\t</dict>")
	}
	if d.RunAs != "" {
		entry("UserName", text(d.RunAs))
	}
	if d.LogFile != "" {
		entry("StandardErrorPath", text(d.LogFile))
		entry("WorkingDirectory", text(filepath.Dir(d.LogFile)))
	}
	entry("RunAtLoad", "<true/>")
	entry("KeepAlive", "<dict>\n\t\t<key>SuccessfulExit</key>\n\t\t<false/>\n\t</dict>")
	entry("ThrottleInterval", "<integer>10</integer>")
	entry("ExitTimeOut", "<integer>30</integer>")
	b.WriteString("</dict>\n</plist>\n")
	return b.String()
}
