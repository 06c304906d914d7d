package osservice

import (
	"context"
	"os"

	"github.com/kardianos/service"
)

// Run calls work, with a context that ends when the service manager of Windows stops the service,
// if it has started this process.
func Run(ctx context.Context, work func(context.Context) int) int {
	if service.Interactive() {
		return work(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := &windowsProgram{stop: stop, ended: make(chan struct{})}
	p.start = func() {
		p.code = work(ctx)
		if ctx.Err() == nil {
			os.Exit(p.code) // the service manager restarts the service
		}
		close(p.ended)
	}
	s, err := service.New(p, &service.Config{Name: DefaultName})
	if err != nil {
		return work(ctx)
	}
	if err := s.Run(); err != nil {
		return 1
	}
	return p.code
}

// A windowsProgram connects work with the service manager of Windows.
type windowsProgram struct {
	start func()
	stop  func()
	ended chan struct{}
	code  int // exit code; set before ended is closed
}

// Start implements service.Interface.
func (p *windowsProgram) Start(service.Service) error {
	go p.start()
	return nil
}

// Stop implements service.Interface. It waits until the backends have ended.
func (p *windowsProgram) Stop(service.Service) error {
	p.stop()
	<-p.ended
	return nil
}
