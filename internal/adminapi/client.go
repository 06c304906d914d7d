package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// ErrEnded is the error of a request to a gateway that has ended.
var ErrEnded = errors.New("the gateway has ended")

// maxResponse bounds the size of a response that an APIClient reads, in bytes.
const maxResponse = 16 << 20

// An APIClient sends requests to the admin socket of one gateway. Its methods wait until ctx is
// done at most. They return ErrEnded if the gateway has ended, and an *APIError if it has refused
// the request.
type APIClient struct {
	gateway Registered
	http    *http.Client
}

// Client returns a client of the gateway. It connects with the first request.
func (r Registered) Client() *APIClient {
	c := &APIClient{gateway: r}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.gateway.dial(ctx)
		},
		DisableKeepAlives: true,
	}}
	return c
}

// An APIError is the response to a request that was refused or has failed.
type APIError struct {
	Status int    `json:"-"` // HTTP status
	Text   string `json:"error"`
	Hint   string `json:"hint,omitempty"` // what to do next
}

func (e *APIError) Error() string { return e.Text }

// do sends a request and returns its response, whose status is 200.
func (c *APIClient) do(ctx context.Context, method, path string, query url.Values) (
	*http.Response, error,
) {
	// The name of the host is the same on all systems; dial ignores it.
	u := url.URL{Scheme: "http", Host: "localhost", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	if c.gateway.record.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.gateway.record.Token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if errors.Is(err, ErrEnded) {
			return nil, ErrEnded
		}
		if cause := errors.Unwrap(err); cause != nil { // without the meaningless URL
			err = cause
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	e := &APIError{Status: resp.StatusCode}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(text, e) != nil || e.Text == "" {
		e.Text = fmt.Sprintf("unexpected response of the gateway: %s", resp.Status)
	}
	return nil, e
}

// call sends a request and decodes the response into result.
func (c *APIClient) call(
	ctx context.Context, method, path string, query url.Values, result any,
) error {
	resp, err := c.do(ctx, method, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxResponse)).Decode(result); err != nil {
		return fmt.Errorf("response of the gateway: %w", err)
	}
	return nil
}

// Status returns the status of the gateway.
func (c *APIClient) Status(ctx context.Context) (*GatewayStatus, error) {
	s := new(GatewayStatus)
	return s, c.call(ctx, http.MethodGet, "/api/v1/status", nil, s)
}

// Calls returns calls in flight and recent calls.
func (c *APIClient) Calls(ctx context.Context, f CallFilter) (*CallList, error) {
	l := new(CallList)
	return l, c.call(ctx, http.MethodGet, "/api/v1/calls", f.Values(), l)
}

// Call returns the call with a call id.
func (c *APIClient) Call(ctx context.Context, id string) (*CallDetail, error) {
	d := new(CallDetail)
	return d, c.call(ctx, http.MethodGet, "/api/v1/calls/"+id, nil, d)
}

// Act does something to a backend. It waits until calls in flight have ended and the backend has
// the new state.
func (c *APIClient) Act(
	ctx context.Context, backend string, a BackendAction,
) (*ActionResult, error) {
	r := new(ActionResult)
	return r, c.call(ctx, http.MethodPost, "/api/v1/backends/"+backend+"/"+string(a), nil, r)
}

// Reload makes the gateway read its configuration file, and waits until the changes are applied.
func (c *APIClient) Reload(ctx context.Context) (*ReloadResult, error) {
	r := new(ReloadResult)
	return r, c.call(ctx, http.MethodPost, "/api/v1/reload", nil, r)
}

// Logs returns lines of the log. The parameters of the query are those of GET /api/v1/logs.
func (c *APIClient) Logs(ctx context.Context, query url.Values) ([]LogEntry, error) {
	var l LogList
	err := c.call(ctx, http.MethodGet, "/api/v1/logs", query, &l)
	return l.Lines, err
}

// Catalog returns the merged catalog.
func (c *APIClient) Catalog(ctx context.Context) (*CatalogList, error) {
	l := new(CatalogList)
	return l, c.call(ctx, http.MethodGet, "/api/v1/catalog", nil, l)
}

// Series returns the series of calls of the last 24 hours.
func (c *APIClient) Series(ctx context.Context) (*SeriesList, error) {
	l := new(SeriesList)
	return l, c.call(ctx, http.MethodGet, "/api/v1/series", nil, l)
}
