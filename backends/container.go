package backends

import (
	"context"

	"mcpgateway/backends/internal/containers"
)

// sweepContainers stops the containers of gateways that were killed.
func (s *Set) sweepContainers(ctx context.Context) {
	s.containers.Sweep(ctx, func() (all []containers.Backend) {
		for _, b := range s.current().all {
			all = append(all, b.containerBackend())
		}
		return all
	}, func() []string { return childEnv(nil, s.ChildEnv, nil) })
}
