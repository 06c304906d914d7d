// Package doctor checks the environment of a gateway: its configuration, the programs that backends
// need, its state directory and the configurations of clients. Each function checks one subject,
// and returns findings instead of an error, so that one broken subject does not hide the others. No
// function changes anything.
package doctor

import "fmt"

// A Level says how bad a finding is.
type Level string

const (
	OK      Level = "ok"
	Note    Level = "note"    // nothing is wrong, but the user may not expect it
	Warning Level = "warning" // it works, but not as it should
	Problem Level = "problem" // something does not work
)

// A CheckedSubject is what a finding is about.
type CheckedSubject string

// The subjects, in the order in which they are shown.
const (
	Configuration CheckedSubject = "configuration"
	Variables     CheckedSubject = "variables"
	Programs      CheckedSubject = "programs"
	State         CheckedSubject = "state"
	Gateways      CheckedSubject = "gateways"
	Address       CheckedSubject = "address"
	Audit         CheckedSubject = "audit"
	Clients       CheckedSubject = "clients"
	Backends      CheckedSubject = "backends"
	Approvals     CheckedSubject = "approvals"
)

// Subjects are all subjects, in the order in which they are shown.
var Subjects = []CheckedSubject{
	Configuration, Variables, Programs, State, Gateways, Address, Audit, Clients, Backends,
	Approvals,
}

// A DoctorFinding is what a check has found. Its texts may contain text of other programs, and
// secrets of the configuration, so the caller must mask them and escape control characters.
type DoctorFinding struct {
	Subject CheckedSubject `json:"subject"`
	Level   Level          `json:"level"`
	Text    string         `json:"text"`
	Next    string         `json:"next,omitempty"` // what to do, if possible one command
}

// findingList collects the findings about one subject.
type findingList struct {
	subject CheckedSubject
	all     []DoctorFinding
}

// add adds a finding.
func (f *findingList) add(l Level, next, format string, args ...any) {
	f.all = append(f.all, DoctorFinding{f.subject, l, fmt.Sprintf(format, args...), next})
}

// Count returns the number of findings of a level.
func Count(all []DoctorFinding, l Level) (n int) {
	for _, f := range all {
		if f.Level == l {
			n++
		}
	}
	return n
}
