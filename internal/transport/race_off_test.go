//go:build !race

package transport

const dropped = 0
