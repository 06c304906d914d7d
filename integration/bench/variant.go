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

// programs are the programs that a benchmark starts.
type programs struct {
	dir     string // directory for temporary files
	self    string // path of this program
	gateway string // path of the gateway's binary
	server  string // address of the HTTP server
}

// A variant is one way to connect the client to the server.
type variant struct {
	name string
	open func() (*runningVariant, error)
}

// A runningVariant is a variant whose client has completed the handshake.
type runningVariant struct {
	name      string
	client    client
	measured  *process // process in the middle, whose processor time is measured; nil = none
	tool      string   // name of the tool to call
	processes []*process
}

func (o *runningVariant) close() {
	o.client.close()
	for _, p := range o.processes {
		p.end()
	}
}

// An axis is a pair of transports: that of the client and that of the server.
type axis struct{ client, server string }

const (
	stdio = "stdio"
	http1 = "HTTP"
)

func (a axis) String() string { return a.client + "→" + a.server }

// handshake completes the handshake, waits up to a minute until the list has at least tools tools,
// and finds the name of tool in it. If this fails, it closes o and returns an error.
func (o *runningVariant) handshake(tool string, tools int) (*runningVariant, error) {
	if err := initialize(o.client); err != nil {
		o.close()
		return nil, fmt.Errorf("%s: %w", o.name, err)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		all, err := o.client.roundTrip(toolsListRequest)
		if err == nil && bytes.Count(all, []byte(`"inputSchema"`)) < tools {
			err = fmt.Errorf("the list has fewer than %d tools", tools)
		}
		if err == nil {
			o.tool, err = findTool(o.client, tool)
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

// directVariant connects the client directly to the server.
func (r *programs) directVariant(a axis) variant {
	return variant{"direct", func() (*runningVariant, error) {
		if a.server == http1 {
			return (&runningVariant{name: "direct",
				client: newHTTPClient(r.server, "/mcp")}).handshake("b0_tool_0", 1)
		}
		p, err := startProcess(r.backendCommand(0, 25)...)
		if err != nil {
			return nil, err
		}
		return (&runningVariant{name: "direct", client: newStdioClient(p.in, p.out),
			processes: []*process{p}}).handshake("b0_tool_0", 1)
	}}
}

// relayVariant connects the client through a relay.
func (r *programs) relayVariant(a axis) variant {
	return variant{"relay", func() (*runningVariant, error) {
		switch a {
		case axis{stdio, stdio}:
			return openThrough("relay", "",
				append([]string{r.self, "relay"}, r.backendCommand(0, 25)...))
		case axis{stdio, http1}:
			return openThrough("relay", "",
				[]string{r.self, "stdio-to-http", "-to", "http://" + r.server})
		}
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		if a.server == http1 {
			return openThrough("relay", address,
				[]string{r.self, "proxy", "-listen", address, "-to", "http://" + r.server})
		}
		return openThrough("relay", address,
			append([]string{r.self, "http-to-stdio", address}, r.backendCommand(0, 25)...))
	}}
}

// openThrough connects the client through a command: over HTTP if address is set, otherwise over
// the stdio of the command.
func openThrough(name, address string, command []string) (*runningVariant, error) {
	return openThroughTools(name, address, command, "b0_tool_0", 1)
}

func openThroughTools(name, address string, command []string, tool string,
	tools int) (*runningVariant, error) {
	p, err := startProcess(command...)
	if err != nil {
		return nil, err
	}
	o := &runningVariant{name: name, measured: p, processes: []*process{p}}
	if address == "" {
		o.client = newStdioClient(p.in, p.out)
		return o.handshake(tool, tools)
	}
	o.client = newHTTPClient(address, "/mcp")
	if err := awaitListening(address); err != nil {
		o.close()
		return nil, err
	}
	return o.handshake(tool, tools)
}

// A gatewayConfig describes the configuration of a gateway.
type gatewayConfig struct {
	axis     axis
	backends int    // number of backends; 0 = 1
	tools    int    // tools per backend; 0 = 25
	slow     bool   // add a backend whose calls take a second
	noAudit  bool   // write no audit records
	sessions int    // further idle sessions
	state    string // state directory; "" = none
}

func (s gatewayConfig) toolsOfAll() int { return max(1, s.backends) * s.toolsOfEach() }

func (s gatewayConfig) toolsOfEach() int {
	if s.tools > 0 {
		return s.tools
	}
	return 25
}

// twentyBackends configures 20 backends and a state directory for their catalogs.
func (r *programs) twentyBackends(client string) gatewayConfig {
	return gatewayConfig{axis: axis{client, stdio}, backends: 20,
		state: filepath.Join(r.dir, "state")}
}

// gatewayVariant connects the client through the gateway.
func (r *programs) gatewayVariant(name string, s gatewayConfig) variant {
	return variant{name, func() (*runningVariant, error) {
		command, address, err := r.gatewayCommand(s)
		if err != nil {
			return nil, err
		}
		o, err := openThroughTools(name, address, command, "b0_tool_0", s.toolsOfAll())
		if err != nil {
			return nil, err
		}
		others := newHTTPClient(address, "/mcp")
		defer others.close()
		for range s.sessions {
			if err := initialize(others.withoutSession()); err != nil {
				o.close()
				return nil, fmt.Errorf("%s: a further session: %w", name, err)
			}
		}
		return o, nil
	}}
}

// gatewayCommand writes a configuration and returns the command of a gateway with this
// configuration, and the address at which the gateway listens; "" = stdio. Audit records are not
// written to the directory of the configuration, because the gateway watches that directory.
func (r *programs) gatewayCommand(s gatewayConfig) (command []string, address string, err error) {
	dir, err := os.MkdirTemp(r.dir, "setup-")
	if err != nil {
		return nil, "", err
	}
	records := filepath.Join(dir, "records")
	if err := errors.Join(os.Mkdir(records, 0o700),
		os.Mkdir(filepath.Join(dir, "config"), 0o700)); err != nil {
		return nil, "", err
	}
	audit := filepath.Join(records, "audit.jsonl")
	if s.noAudit {
		audit = "none"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "state: %q\nlog: {level: error}\naudit: {file: %q}\nbackends:\n",
		orNone(s.state), audit)
	if s.slow {
		fmt.Fprintf(&text,
			"  - {name: slow, command: %q, args: [backend, -name, slow, -slow, 1s]}\n", r.self)
	}
	if s.axis.server == http1 {
		fmt.Fprintf(&text, "  - {name: b0, url: \"http://%s/mcp\"}\n", r.server)
	} else {
		for i := range max(1, s.backends) {
			c := r.backendCommand(i, s.toolsOfEach())
			fmt.Fprintf(&text, "  - {name: b%d, command: %q, args: [%s]}\n", i, c[0],
				strings.Join(c[1:], ", "))
		}
	}
	file := filepath.Join(dir, "config", "gateway.yaml")
	command = []string{r.gateway, "-c", file}
	if s.axis.client == http1 {
		if address, err = freeAddress(); err != nil {
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

// backendCommand returns the command of the i-th server.
func (r *programs) backendCommand(i, tools int) []string {
	return []string{r.self, "backend", "-name", fmt.Sprint("b", i), "-tools", fmt.Sprint(tools)}
}

// An otherGateway is a gateway for comparison. Its command line contains {backend} or {url} for the
// server, and, for HTTP clients, {listen}, or {host} and {port}, for its address.
type otherGateway struct{ name, command string }

func (o otherGateway) axis() axis {
	a := axis{stdio, stdio}
	if strings.Contains(o.command, "{url}") {
		a.server = http1
	}
	if strings.Contains(o.command, "{listen}") || strings.Contains(o.command, "{port}") {
		a.client = http1
	}
	return a
}

func (r *programs) otherVariant(o otherGateway) variant {
	return variant{o.name, func() (*runningVariant, error) {
		address := ""
		if o.axis().client == http1 {
			var err error
			if address, err = freeAddress(); err != nil {
				return nil, err
			}
		}
		host, port, _ := strings.Cut(address, ":")
		command := strings.NewReplacer("{backend}", strings.Join(r.backendCommand(0, 25), " "),
			"{url}", "http://"+r.server+"/mcp",
			"{listen}", address, "{host}", host, "{port}", port).Replace(o.command)
		return openThrough(o.name, address, []string{"sh", "-c", "exec " + command})
	}}
}
