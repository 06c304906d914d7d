//go:build !windows

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyReopen returns a channel that receives SIGUSR1, which otherwise would end the process.
// Signals that arrive while one waits in the channel are dropped.
func notifyReopen() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	return c
}
