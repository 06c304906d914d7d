//go:build !linux

package procgroup

// BecomeSubreaper does nothing where processes cannot adopt.
func BecomeSubreaper() (stop func()) { return func() {} }
