package resourceserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// fetchTimeout is the maximum time for one exchange with the authorization server, which may
	// consist of several requests.
	fetchTimeout = 10 * time.Second
	// maxDocument is the maximum number of bytes of a response of the authorization server.
	maxDocument = 1 << 20
)

// An httpStatusError is the error for a response with another status than 200.
type httpStatusError struct {
	url    string
	status int
}

func (e *httpStatusError) Error() string {
	if e.status >= 300 && e.status < 400 {
		return fmt.Sprintf("%s: status %d: redirects are not followed", e.url, e.status)
	}
	return fmt.Sprintf("%s: status %d", e.url, e.status)
}

// fetch sends a request and returns the body of its response with status 200.
func fetch(client *http.Client, r *http.Request) ([]byte, error) {
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "mcp-gateway")
	response, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URL.Redacted(), shortError(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, &httpStatusError{r.URL.Redacted(), response.StatusCode}
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.URL.Redacted(), shortError(err))
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("%s: the response is longer than %d bytes", r.URL.Redacted(),
			maxDocument)
	}
	return text, nil
}

// shortError returns the reason why a request has failed, without the URL. It says in plain words
// that the time is over, and contains no local port: the port differs for each connection, and
// logFailure compares the texts.
func shortError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no complete response within %v", fetchTimeout)
	}
	if u, is := errors.AsType[*url.Error](err); is {
		err = u.Err
	}
	if op, is := errors.AsType[*net.OpError](err); is && op.Source != nil {
		return fmt.Errorf("%s %s %v: %w", op.Op, op.Net, op.Addr, op.Err)
	}
	return err
}

func get(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	return fetch(client, r)
}

// metadataURLs returns the URLs at which the metadata of an issuer may be, in the order of the
// authorization specification of MCP.
func metadataURLs(issuer string) []string {
	u, err := url.Parse(issuer)
	if err != nil {
		return nil
	}
	origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
	all := []string{
		origin + "/.well-known/oauth-authorization-server" + path,
		origin + "/.well-known/openid-configuration" + path,
	}
	if path != "" {
		all = append(all, origin+path+"/.well-known/openid-configuration")
	}
	return all
}

// checkEndpoint returns an error if an endpoint in the metadata of an issuer is not an absolute
// URL, or is not encrypted although the issuer is.
func checkEndpoint(issuer, endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" ||
		u.Scheme != "https" && strings.HasPrefix(issuer, "https://") {
		return fmt.Errorf("the metadata of %s contain an endpoint that is not an https URL", issuer)
	}
	return nil
}
