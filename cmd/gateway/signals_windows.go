package main

import "os"

// notifyReopen returns a channel that receives nothing: Windows has no SIGUSR1.
func notifyReopen() <-chan os.Signal { return nil }
