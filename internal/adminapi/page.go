package adminapi

import (
	"context"
	"net/http"
	"path/filepath"
)

// A PageCode is the response of POST /api/v1/page/code.
type PageCode struct {
	URL string `json:"url"` // of the page
	// Code is a secret with which a browser can log in once, within a minute.
	Code string `json:"code"`
}

// PageCode returns the address of the page of the gateway, and a code for it.
func (c *APIClient) PageCode(ctx context.Context) (*PageCode, error) {
	p := new(PageCode)
	return p, c.call(ctx, http.MethodPost, "/api/v1/page/code", nil, p)
}

// StateDir returns the state directory of the gateway.
func (c *APIClient) StateDir() string { return filepath.Dir(filepath.Dir(c.gateway.path)) }
