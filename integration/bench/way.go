package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A way leads from the client to the server.
type way struct {
	name string
	open func(*run) (*open, error)
}

// open is a way that stands. Its client has shaken hands.
type open struct {
	name    string
	client  client
	between *process // whose processor time counts; nil = there is nothing between
	tool    string   // the one to call, under its name there
	begun   []*process
}

func (o *open) close() {
	o.client.close()
	for _, p := range o.begun {
		p.end()
	}
}

// An axis is how the client speaks and how the server does.
type axis struct{ client, server string }

const (
	stdio = "stdio"
	http1 = "HTTP"
)

func (a axis) String() string { return a.client + "→" + a.server }

// greet ends how a way is opened: the client shakes hands, and finds its tool.
func (o *open) greet(tool string, tools int) (*open, error) {
	if err := initialize(o.client); err != nil {
		o.close()
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		all, err := o.client.ask(list)
		if err == nil && bytes.Count(all, []byte(`"inputSchema"`)) < tools {
			err = fmt.Errorf("the list has not all of %d tools", tools)
		}
		if err == nil {
			o.tool, err = find(o.client, tool)
		}
		if err == nil {
			return o, nil
		}
		if time.Since(began) > time.Minute {
			o.close()
			return nil, fmt.Errorf("%s: %w", o.name, err)
		}
	}
}

// direct has nothing between.
func (r *run) direct(a axis) way {
	return way{"direct", func(*run) (*open, error) {
		if a.server == http1 {
			return (&open{name: "direct", client: newWeb(r.server, "/mcp")}).greet("b0_tool_0", 1)
		}
		p, err := spawn(r.backend(0, 25)...)
		if err != nil {
			return nil, err
		}
		return (&open{name: "direct", client: newPipe(p.in, p.out), begun: []*process{p}}).greet("b0_tool_0", 1)
	}}
}

// relay has the least between that there can be.
func (r *run) relay(a axis) way {
	return way{"relay", func(*run) (*open, error) {
		switch a {
		case axis{stdio, stdio}:
			return r.between("relay", "", append([]string{r.self, "relay"}, r.backend(0, 25)...))
		case axis{stdio, http1}:
			return r.between("relay", "", []string{r.self, "poster", "-to", "http://" + r.server})
		}
		address, err := place()
		if err != nil {
			return nil, err
		}
		if a.server == http1 {
			return r.between("relay", address, []string{r.self, "proxy", "-listen", address, "-to", "http://" + r.server})
		}
		return r.between("relay", address, append([]string{r.self, "piper", address}, r.backend(0, 25)...))
	}}
}

// between opens a way through a command, over its stdio or, if it listens, at address.
func (r *run) between(name, address string, command []string) (*open, error) {
	return r.through(name, address, command, "b0_tool_0", 1)
}

func (r *run) through(name, address string, command []string, tool string, tools int) (*open, error) {
	p, err := spawn(command...)
	if err != nil {
		return nil, err
	}
	o := &open{name: name, between: p, begun: []*process{p}}
	if address == "" {
		o.client = newPipe(p.in, p.out)
		return o.greet(tool, tools)
	}
	o.client = newWeb(address, "/mcp")
	if err := listens(address); err != nil {
		o.close()
		return nil, err
	}
	return o.greet(tool, tools)
}

// A setup is how a gateway is configured.
type setup struct {
	axis     axis
	backends int    // with 25 tools each unless tools is set
	tools    int    // of each
	slow     bool   // there is one more, which takes a second for a call
	noAudit  bool   // nothing is recorded
	sessions int    // others that are open, idle
	state    string // directory in which catalogs are kept; "" = none are
}

func (s setup) all() int { return max(1, s.backends) * s.each() }

func (s setup) each() int {
	if s.tools > 0 {
		return s.tools
	}
	return 25
}

// through the gateway.
func (r *run) gatewayWith(name string, s setup) way {
	return way{name, func(*run) (*open, error) {
		command, address, err := r.command(s)
		if err != nil {
			return nil, err
		}
		o, err := r.through(name, address, command, "b0_tool_0", s.all())
		if err != nil {
			return nil, err
		}
		crowd := newWeb(address, "/mcp")
		defer crowd.close()
		for range s.sessions {
			if err := initialize(crowd.anew()); err != nil {
				o.close()
				return nil, fmt.Errorf("%s: a further session: %w", name, err)
			}
		}
		return o, nil
	}}
}

// command writes a configuration and returns what starts a gateway with it, and where that listens if it
// does. Log and audit records go where a user's do, not into the directory of the configuration, which the
// gateway watches.
func (r *run) command(s setup) (command []string, address string, err error) {
	dir, err := os.MkdirTemp(r.dir, "setup-")
	if err != nil {
		return nil, "", err
	}
	records := filepath.Join(dir, "records")
	if err := errors.Join(os.Mkdir(records, 0o700), os.Mkdir(filepath.Join(dir, "config"), 0o700)); err != nil {
		return nil, "", err
	}
	audit := filepath.Join(records, "audit.jsonl")
	if s.noAudit {
		audit = "none"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "state: %q\nlog: {level: error}\naudit: {file: %q}\nbackends:\n", orNone(s.state), audit)
	if s.slow {
		fmt.Fprintf(&text, "  - {name: slow, command: %q, args: [backend, -name, slow, -slow, 1s]}\n", r.self)
	}
	if s.axis.server == http1 {
		fmt.Fprintf(&text, "  - {name: b0, url: \"http://%s/mcp\"}\n", r.server)
	} else {
		for i := range max(1, s.backends) {
			c := r.backend(i, s.each())
			fmt.Fprintf(&text, "  - {name: b%d, command: %q, args: [%s]}\n", i, c[0], strings.Join(c[1:], ", "))
		}
	}
	file := filepath.Join(dir, "config", "gateway.yaml")
	command = []string{r.gateway, "-c", file}
	if s.axis.client == http1 {
		if address, err = place(); err != nil {
			return nil, "", err
		}
		command = append(command, "--listen", address)
	}
	return command, address, os.WriteFile(file, []byte(text.String()), 0o600)
}

func orNone(path string) string {
	if path == "" {
		return "none"
	}
	return path
}

// backend is the command of the i-th server.
func (r *run) backend(i, tools int) []string {
	return []string{r.self, "backend", "-name", fmt.Sprint("b", i), "-tools", fmt.Sprint(tools)}
}

// An other is a gateway that is compared: its command line, with {backend} or {url} for the server, and
// {listen}, {host} and {port} for where it listens, if it does.
type other struct{ name, command string }

func (o other) axis() axis {
	a := axis{stdio, stdio}
	if strings.Contains(o.command, "{url}") {
		a.server = http1
	}
	if strings.Contains(o.command, "{listen}") || strings.Contains(o.command, "{port}") {
		a.client = http1
	}
	return a
}

func (r *run) otherWay(o other) way {
	return way{o.name, func(*run) (*open, error) {
		address := ""
		if o.axis().client == http1 {
			var err error
			if address, err = place(); err != nil {
				return nil, err
			}
		}
		host, port, _ := strings.Cut(address, ":")
		command := strings.NewReplacer("{backend}", strings.Join(r.backend(0, 25), " "), "{url}", "http://"+r.server+"/mcp",
			"{listen}", address, "{host}", host, "{port}", port).Replace(o.command)
		return r.between(o.name, address, []string{"sh", "-c", "exec " + command})
	}}
}
