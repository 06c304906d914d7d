package reload

import "mcpgateway/internal/config"

// A FileState compares the configuration in force with its file, as it was read last.
type FileState struct {
	Source      string   // path of the file, "" = none
	Problems    []string // of the file, which was refused; nil = the file is valid
	NeedRestart []string // keys whose changes apply when the gateway is restarted
	// InForce is the configuration in force. It must not be changed.
	InForce *config.Config

	Changed <-chan struct{} // closed when there is a newer FileState

	changed   chan struct{}
	lastRead  *config.Loaded
	unchanged func(*config.Loaded) bool
}

// HasChanged reports whether the text of the file, or of a file that it refers to, differs from the
// text that was read last. It reads these files. A pipe has never changed.
func (f *FileState) HasChanged() bool {
	return f.Source != "" && f.Problems == nil && IsRegularOrMissing(f.Source) &&
		!f.unchanged(f.lastRead)
}

// Differences returns the changes in the valid file that was read last and that are not in force.
func (f *FileState) Differences() config.Changes {
	return config.Diff(f.InForce, f.lastRead.Config)
}

// A ReloadReport is the outcome of a reload.
type ReloadReport struct {
	File     string         // "" = there is none
	Changes  config.Changes // that were applied, or need a restart
	Problems []string       // of the file; if there are any, nothing was changed
	NotReady []string       // new and changed backends that are not ready, each with its state
}
