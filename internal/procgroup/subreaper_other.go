//go:build !linux

package procgroup

// BecomeSubreaper does nothing, because this system has no subreapers.
func BecomeSubreaper() (stop func()) { return func() {} }
