//go:build race

package transport

// racePoolMisses is the number of additional chunks of a long line with the race detector, under
// which [sync.Pool] drops one object in four.
const racePoolMisses = 17
