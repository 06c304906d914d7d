package catalog

import (
	"fmt"
	"maps"
	"strings"
	"testing"
)

// A name is assigned to another backend than in the last run.
func TestMovesSinceTheLastRun_F_CLI_6(t *testing.T) {
	last := []Listing{named(t, "a", "read", "write"), named(t, "b", "read", "list")}
	for name, c := range map[string]struct {
		o        Options
		listings []Listing
		moves    string // as returned by Moves
	}{
		"unchanged": {listings: last, moves: "[]"},
		"backend added after": {listings: []Listing{last[0], last[1],
			named(t, "c", "read")}, moves: "[]"},
		"backend added before": {listings: []Listing{named(t, "c", "read"), last[0],
			last[1]}, moves: "[{tool read a c}]"},
		"another order": {listings: []Listing{last[1], last[0]},
			moves: "[{tool read a b}]"},
		"backend removed": {listings: last[1:], moves: "[{tool read a b}]"},
		"backend renamed": {listings: []Listing{named(t, "z", "read", "write"),
			last[1]}, moves: "[{tool read a z} {tool write a z}]"},
		"tool filtered": {listings: []Listing{named(t, "a", "write"),
			last[1]}, moves: "[{tool read a b}]"},
		"not listed": {listings: []Listing{named(t, "a", "write"),
			named(t, "b", "list")}, moves: "[]"},
		"unknown list": {listings: []Listing{unknown("a"), last[1]},
			moves: "[]"},
		"unknown list, another backend before": {listings: []Listing{named(t, "c", "read"),
			unknown("a"), last[1]}, moves: "[]"},
		"always": {o: Options{Prefix: PrefixAlways},
			listings: []Listing{last[1], last[0]}, moves: "[]"},
		"never": {o: Options{Prefix: PrefixNever},
			listings: []Listing{last[1], last[0]}, moves: "[{tool read a b}]"},
		"prefixed name imitated": {listings: []Listing{named(t, "a", "read",
			"b__read")}, moves: "[{tool b__read b a}]"},
		"bare name prefixed": {listings: []Listing{named(t, "a", "read"), named(t, "list", "read"),
			named(t, "b", "list__read")},
			moves: "[]"},
	} {
		record := Merge(Options{}, last).Assignments()
		next := FromAssignments(record).Next(c.o, c.listings, true)
		if got := fmt.Sprint(next.Moves()); got != c.moves {
			t.Errorf("%s: moves %s, want %s", name, got, c.moves)
		}
		if got := fmt.Sprint(next.MovesSince(record)); got != c.moves {
			t.Errorf("%s: MovesSince %s, want %s", name, got, c.moves)
		}
		if again := FromAssignments(next.Assignments()).Next(c.o, c.listings,
			true).Moves(); again != nil {
			t.Errorf("%s: in the next run %v", name, again)
		}
	}
}

func unknown(backend string) Listing {
	l := Listing{Backend: backend}
	for k := range l.Unknown {
		l.Unknown[k] = true
	}
	return l
}

// A bare name of one backend is a prefixed name of another in the next run.
func TestABareNameIsPrefixedInTheNextRun_F_CLI_6(t *testing.T) {
	record := Merge(Options{}, []Listing{named(t, "a", "github__create")}).Assignments()
	next := FromAssignments(record).Next(Options{},
		[]Listing{named(t, "a", "create"), named(t, "github", "create")}, true)
	if got := fmt.Sprint(next.Moves()); got != "[{tool github__create a github}]" {
		t.Errorf("moves %s", got)
	}
}

// A backend whose list is unknown keeps its bare names across a restart. The same holds for URIs
// and prompts.
func TestNamesAreReservedAfterARestart_F_CLI_6(t *testing.T) {
	for _, k := range []Kind{Tools, Prompts, Resources} {
		name := "x"
		if k == Resources {
			name = "file:///x"
		}
		first := []Listing{having(t, "a", k, name), having(t, "b", k, name)}
		record := Merge(Options{}, first).Assignments()
		failed := FromAssignments(record).Next(Options{}, []Listing{unknown("a"), first[1]}, true)
		wantRoutes(t, failed, k, map[string]string{name: "a " + name})
		if moves := failed.Moves(); moves != nil {
			t.Errorf("%v: %v", k, moves)
		}
		if again := failed.Assignments(); !maps.Equal(again[k], record[k]) {
			t.Errorf("%v: assignments are %v, were %v", k, again[k], record[k])
		}
		back := failed.Next(Options{}, first, false)
		wantRoutes(t, back, k, map[string]string{name: "a " + name})
		if moves := back.Moves(); moves != nil {
			t.Errorf("%v: %v", k, moves)
		}
		gone := FromAssignments(record).Next(Options{}, first[1:], true)
		if moves := gone.Moves(); fmt.Sprint(moves) != fmt.Sprintf("[{%v %s a b}]", k, name) {
			t.Errorf("%v: %v", k, moves)
		}
	}
}

// Unused names are remembered for the run in which another backend has them.
func TestReleasedNamesStayInAssignments_F_CLI_6(t *testing.T) {
	record := Merge(Options{}, []Listing{named(t, "a", "read")}).Assignments()
	for range 3 {
		record = FromAssignments(record).Next(Options{}, []Listing{named(t, "b", "other")},
			true).Assignments()
	}
	s := FromAssignments(record).Next(Options{}, []Listing{named(t, "b", "other")}, true)
	// b lists the name later
	s = s.Next(Options{}, []Listing{named(t, "b", "other", "read")}, false)
	if got := fmt.Sprint(s.Moves()); got != "[{tool read a b}]" {
		t.Errorf("moves %s", got)
	}
}

func TestAssignmentsAreBounded_F_CLI_6(t *testing.T) {
	var all []string
	for i := range 3000 {
		all = append(all, fmt.Sprintf("file:///%d/%s", i, strings.Repeat("x", 4000)))
	}
	record := Merge(Options{}, []Listing{named(t, "a", "read"),
		readable(t, "b", all, nil)}).Assignments()
	size := 0
	for _, names := range record {
		for name, o := range names {
			size += len(name) + len(o.Backend) + len(o.Original) + assignmentSize
		}
	}
	if size > maxAssignments || size < maxAssignments*9/10 || len(record[Tools]) != 1 {
		t.Errorf("%d bytes, %d tools", size, len(record[Tools]))
	}
}

func TestTransfersGroupMoves_F_CLI_6(t *testing.T) {
	got := Transfers([]Move{{Tools, "x", "a", "b"}, {Prompts, "x", "a", "b"},
		{Tools, "y", "a", "c"}, {Tools, "z", "a", "b"}})
	if want := "[{tool a b [x z]} {prompt a b [x]} {tool a c [y]}]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
