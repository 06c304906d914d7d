//go:build unix

package main

import "context"

func (w *world) soak(ctx context.Context) (bool, error) { return false, nil }
