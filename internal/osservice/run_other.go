//go:build !windows

package osservice

import "context"

// Run calls work. Signals tell it to end.
func Run(ctx context.Context, work func(context.Context) int) int { return work(ctx) }
