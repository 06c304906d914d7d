//go:build race

package transport

// racePoolMisses is the number of additional chunks of a long line with the race detector, which
// makes [sync.Pool] drop one object in four.
const dropped = 17
