package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpgateway/internal/config"
	"mcpgateway/internal/httpserver"
)

// healthTimeout is how long a gateway may take to answer.
const healthTimeout = 3 * time.Second

func healthCommand(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "health [URL]",
		Short: "Ask a running gateway whether it is alive: exit code 0 or 1",
		Long: `health asks a gateway that serves HTTP whether it is alive, and waits 3 s at most. It needs no
token. Without a URL it asks the gateway that has this configuration, at its "listen". With the
URL of a gateway it asks for /healthz there, or for the path of the URL if that has one:

    gateway health
    gateway health http://127.0.0.1:7420
    gateway health http://127.0.0.1:7420/readyz`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageErrorOf(cmd.CommandPath(), fmt.Errorf("%s takes one URL", cmd.CommandPath()))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
			var at string
			var err error
			if len(args) == 1 {
				at, err = healthURL(args[0])
			} else {
				// It is this machine that is asked, by an address that its certificate need not have, and
				// nothing secret is sent.
				transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
				at, err = c.ownHealthURL()
			}
			if err != nil {
				return err
			}
			client := &http.Client{
				Timeout: healthTimeout, Transport: transport,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			}
			request, err := http.NewRequestWithContext(cmd.Context(), http.MethodGet, at, nil)
			if err != nil {
				return usageErrorOf(cmd.CommandPath(), err)
			}
			response, err := client.Do(request)
			if err != nil {
				return hintedError{err, healthHint(err)}
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(io.LimitReader(response.Body, 200))
			if response.StatusCode != http.StatusOK {
				err := fmt.Errorf("%s: %s: %q", at, response.Status, strings.TrimSpace(string(text)))
				if response.StatusCode == http.StatusBadRequest && strings.Contains(string(text), "HTTP request to an HTTPS server") {
					return hintedError{err, "the gateway serves TLS: write https://"}
				}
				if response.Header.Get("Server") != httpserver.ServerHeader && !isGatewayResponse(text) {
					return hintedError{err, "another program listens at that address, or a proxy in front of the gateway answers"}
				}
				return err
			}
			if response.Header.Get("Server") != httpserver.ServerHeader && (len(args) == 0 || string(text) != "ok\n") { // a proxy may change the header
				return hintedError{fmt.Errorf("%s: the program that answers there is not a gateway", at), "another program listens at that address"}
			}
			_, err = fmt.Fprintln(c.out, "ok")
			return err
		},
	}
}

// isGatewayResponse reports whether a text begins as those do with which a gateway answers when it is not ready, or refuses a
// request. A proxy leaves them as they are.
func isGatewayResponse(text []byte) bool {
	return bytes.HasPrefix(text, []byte("not ready: ")) || bytes.HasPrefix(text, []byte(`{"jsonrpc":"2.0",`))
}

// healthHint returns what to do about a gateway that cannot be asked.
func healthHint(err error) string {
	_, expired := errors.AsType[x509.CertificateInvalidError](err)
	_, otherName := errors.AsType[x509.HostnameError](err)
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the gateway serves no TLS: write http://"
	case otherName:
		return "write the URL with a name that is in the certificate"
	case expired:
		return "the certificate is not valid: put a valid one into the files of tls.cert and tls.key"
	case isA[*tls.CertificateVerificationError](err):
		return "the certificate is not trusted: set SSL_CERT_FILE to a file with the certificate of its authority"
	}
	if strings.Contains(err.Error(), "malformed HTTP") {
		return "another program listens at that address"
	}
	return "is a gateway running there? gateway serve --listen starts one"
}

// healthURL returns the URL at which the gateway with this URL is asked.
func healthURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", usageErrorOf("gateway health", fmt.Errorf("%q is not the URL of a gateway", text))
	}
	switch strings.TrimRight(u.Path, "/") {
	case "", "/mcp", "/sse":
		u.Path = "/healthz"
	}
	return u.String(), nil
}

// ownHealthURL returns the URL at which the gateway with the configuration at hand is asked.
func (c *cli) ownHealthURL() (string, error) {
	loaded, err := config.Load(config.Options{
		Path: c.config, Flags: c.flagValues(), VariableNames: variableNames(), Approve: c.approver(true), RequiredKeys: []string{"listen", "tls"},
	})
	if err != nil {
		return "", err
	}
	return listenURL(loaded.Config)
}

// listenURL returns the URL at which this machine reaches a gateway that listens as c says.
func listenURL(c *config.Config) (string, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	switch {
	case c.Listen == "":
		return "", usageErrorOf("gateway health", fmt.Errorf("the configuration has no listen, and no URL is named"))
	case err != nil:
		return "", err
	case port == "0":
		return "", usageErrorOf("gateway health",
			fmt.Errorf("listen is %s, a port that is chosen at the start: name the URL", c.Listen))
	}
	switch addr, err := netip.ParseAddr(host); {
	case host == "", err == nil && addr.IsUnspecified() && addr.Is4():
		host = "127.0.0.1"
	case err == nil && addr.IsUnspecified():
		host = "::1"
	}
	scheme := "http"
	if c.TLS.Cert != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port) + "/healthz", nil
}
