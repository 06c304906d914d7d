//go:build !race

package transport

const racePoolMisses = 0
