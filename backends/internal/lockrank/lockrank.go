// Package lockrank provides a mutex that checks the order of locks in tests with the race detector.
//
// A goroutine that holds a [Mutex] may lock only a Mutex of a greater [Rank]. So two mutexes of the
// same rank are never held together. In a program that is built with -race, a goroutine that breaks
// this rule panics, even if the other goroutine of the possible deadlock does not run. Without
// -race, a Mutex is a [sync.Mutex].
package lockrank

// A Rank is a type whose length is the rank of mutexes: type connRank [4]struct{}.
type Rank interface {
	~[1]struct{} | ~[2]struct{} | ~[3]struct{} | ~[4]struct{} | ~[5]struct{} | ~[6]struct{}
}
