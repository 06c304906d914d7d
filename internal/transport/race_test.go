//go:build race

package transport

// dropped is how many chunks more than else a long line may take: the race detector has a
// [sync.Pool] forget what it is given, one in four.
const dropped = 17
