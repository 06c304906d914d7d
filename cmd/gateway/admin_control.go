package main

import (
	"context"
	"errors"
	"net/http"

	"mcpgateway/backends"
	"mcpgateway/internal/adminapi"
)

// adminControl changes backends, and reloads the configuration.
type adminControl struct{ *adminService }

// Act implements adminserver.Controller.
func (a adminControl) Act(
	ctx context.Context, name string, action adminapi.BackendAction,
) (result adminapi.ActionResult, err error) {
	control := backends.NewControl(a.backends)
	switch action {
	case adminapi.Restart:
		err = control.Restart(ctx, name)
	case adminapi.Stop:
		err = control.Stop(ctx, name)
	case adminapi.Start:
		err = control.Start(ctx, name)
	}
	if refused, is := errors.AsType[*backends.NotRunnableError](err); is {
		status := http.StatusConflict
		if refused.Unknown {
			status = http.StatusNotFound
		}
		return result, &adminapi.APIError{Status: status, Text: a.errorText(refused)}
	}
	if ctx.Err() != nil {
		return result, ctx.Err()
	}
	status := adminStatus(a).Status()
	for _, b := range status.Backends {
		if b.Name == name {
			result.Backend = b
		}
	}
	result.Error = a.errorText(err)
	return result, nil
}

// Reload implements adminserver.Controller.
func (a adminControl) Reload(ctx context.Context) (adminapi.ReloadResult, error) {
	done, err := a.reloader.Reload(ctx)
	if err != nil {
		return adminapi.ReloadResult{}, err
	}
	result := adminapi.ReloadResult{File: absolutePath(done.File),
		Changes: changeRows(done.Changes, false), NotReady: done.NotReady}
	for _, line := range done.Problems {
		result.Problems = append(result.Problems, a.mask.String(line))
	}
	return result, nil
}
