package main

import (
	"bytes"
	"context"
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

// healthTimeout limits the wait for a response.
const healthTimeout = 3 * time.Second

func healthCommand(s *configSource) *cobra.Command {
	return &cobra.Command{
		Use:   "health [URL]",
		Short: "Ask a running gateway whether it is alive: exit code 0 or 1",
		Long: `health asks a gateway that serves HTTP whether it is alive, and waits at most
3 s. It needs no token. Without a URL it asks the gateway with this configuration, at the
address of "listen". With the URL of a gateway it requests /healthz, or the path of the URL
if it has one:

    gateway health
    gateway health http://127.0.0.1:7420
    gateway health http://127.0.0.1:7420/readyz`,
		Args: optionalArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
			var at string
			var err error
			if len(args) == 1 {
				at, err = healthURL(args[0])
			} else {
				// The request goes to this machine, at an address that the certificate need not
				// contain. The request contains no secret.
				transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
				at, err = ownHealthURL(cmd.Context(), s)
			}
			if err != nil {
				return err
			}
			client := &http.Client{
				Timeout: healthTimeout, Transport: transport,
				CheckRedirect: func(*http.Request, []*http.Request) error {
					return http.ErrUseLastResponse
				},
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
			if err := checkHealthResponse(at, response, text, len(args) == 0); err != nil {
				return err
			}
			_, err = fmt.Fprintln(s.out, "ok")
			return err
		},
	}
}

// checkHealthResponse returns an error if the response does not report a healthy gateway, or is not
// the response of a gateway. local is true if the request went to this machine, without a proxy
// that may have changed the header Server.
func checkHealthResponse(at string, r *http.Response, text []byte, local bool) error {
	const other = "another program listens at that address"
	isGateway := r.Header.Get("Server") == httpserver.ServerHeader
	if r.StatusCode == http.StatusOK {
		if !isGateway && (local || string(text) != "ok\n") {
			err := fmt.Errorf("%s: the program at that address is not a gateway", at)
			return hintedError{err, other}
		}
		return nil
	}
	err := fmt.Errorf("%s: %s: %q", at, r.Status, strings.TrimSpace(string(text)))
	const plainHTTP = "HTTP request to an HTTPS server"
	if r.StatusCode == http.StatusBadRequest && strings.Contains(string(text), plainHTTP) {
		return hintedError{err, "the gateway serves TLS: use https://"}
	}
	if !isGateway && !isGatewayResponse(text) {
		return hintedError{err, other + ", or a proxy in front of the gateway responds"}
	}
	return err
}

// isGatewayResponse reports whether a text begins like the response of a gateway that is not ready
// or that rejects a request. Proxies do not change such texts.
func isGatewayResponse(text []byte) bool {
	return bytes.HasPrefix(text, []byte("not ready: ")) ||
		bytes.HasPrefix(text, []byte(`{"jsonrpc":"2.0",`))
}

// healthHint returns the hint for a failed request.
func healthHint(err error) string {
	_, expired := errors.AsType[x509.CertificateInvalidError](err)
	_, otherName := errors.AsType[x509.HostnameError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the gateway serves no TLS: use http://"
	case otherName:
		return "use a name in the URL that is in the certificate"
	case expired:
		return "the certificate is not valid: " +
			"put a valid one into the files of tls.cert and tls.key"
	case untrusted:
		return "the certificate is not trusted: " +
			"set SSL_CERT_FILE to a file with the certificate of its authority"
	}
	if strings.Contains(err.Error(), "malformed HTTP") {
		return "another program listens at that address"
	}
	return "is a gateway running there? gateway serve --listen starts one"
}

// healthURL returns the health URL for the URL of a gateway. The default scheme is http. A path
// other than /mcp and /sse is kept. The error is a usageError if text is not an HTTP URL.
func healthURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		err := fmt.Errorf("%q is not the URL of a gateway", text)
		return "", usageErrorOf("gateway health", err)
	}
	switch strings.TrimRight(u.Path, "/") {
	case "", "/mcp", "/sse":
		u.Path = "/healthz"
	}
	return u.String(), nil
}

// ownHealthURL returns the health URL of the gateway with the user's configuration.
func ownHealthURL(ctx context.Context, s *configSource) (string, error) {
	o := s.options(ctx, s.path, false, true)
	o.RequiredKeys = []string{"listen", "tls"}
	loaded, err := config.Load(o)
	if err != nil {
		return "", err
	}
	return listenURL(loaded.Config)
}

// listenURL returns the health URL of a gateway on this machine with configuration c. It returns an
// error if c has no listen, or if the port is chosen at the start.
func listenURL(c *config.Config) (string, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	switch {
	case c.Listen == "":
		return "", usageErrorOf("gateway health",
			fmt.Errorf("the configuration has no listen: give the URL, "+
				"as in gateway health http://127.0.0.1:7420"))
	case err != nil:
		return "", err
	case port == "0":
		return "", usageErrorOf("gateway health",
			fmt.Errorf("listen is %s, whose port is chosen at the start: give the URL", c.Listen))
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
