package main

import (
	"net/http"

	"mcpgateway/internal/adminapi"
)

// adminPage knows how browsers reach the page.
type adminPage struct{ *adminService }

// PageCode implements adminserver.PageSource.
func (a adminPage) PageCode() (adminapi.PageCode, error) {
	url := a.adminURL.Load()
	if url == nil {
		return adminapi.PageCode{}, &adminapi.APIError{Status: http.StatusConflict,
			Text: "this gateway serves no page",
			Hint: "add admin: {listen: \"127.0.0.1:7421\"} to its configuration and start it " +
				"again; if it has that, its log says why it does not listen"}
	}
	return adminapi.PageCode{URL: *url + "/", Code: a.logins.NewCode()}, nil
}
