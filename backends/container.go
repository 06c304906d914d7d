package backends

import (
	"context"

	"mcpgateway/backends/internal/containers"
)

// containerBackend returns the process of the backend, which may run a container.
func (b *Backend) containerBackend() containers.Backend {
	return containers.Backend{Name: b.cfg.Name, Command: b.cfg.Command, Args: b.cfg.Args,
		Cwd: b.cfg.Cwd, Env: b.env, Log: b.log}
}

// sweepContainers stops the containers of gateways that were killed.
func (s *Set) sweepContainers(ctx context.Context) {
	s.containers.Sweep(ctx, func() (all []containers.Backend) {
		for _, b := range s.current().all {
			all = append(all, b.containerBackend())
		}
		return all
	}, func() []string { return childEnv(nil, s.ChildEnv, nil) })
}
