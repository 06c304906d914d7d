package auditlog

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxGroups bounds the groups of Stats. Further records are counted in the group OtherGroup.
const maxGroups = 2000

// OtherGroup is the name of the group of records that have no group of their own.
const OtherGroup = "(other)"

// maxName bounds the bytes of the name of a group.
const maxName = 256

// Groupings are the values by which NewStats can group records.
var Groupings = []string{"tool", "backend", "client", "principal", "outcome", "hour"}

// Stats counts records in groups.
type Stats struct {
	by     string
	groups map[string]*StatsGroup
	last   *StatsGroup // of the last record
	lastBy []byte
	minute []byte // time of the last record, up to the minute, and its hour
	hour   []byte
}

// A StatsGroup has the counts of some records.
type StatsGroup struct {
	Name              string
	Calls, Failures   int64
	BytesIn, BytesOut int64
	durations         durationHistogram
}

// Quantile returns the duration of rank q, 0 to 1, including times in queues. It differs from the
// exact duration by at most 1.6 %.
func (g *StatsGroup) Quantile(q float64) time.Duration { return g.durations.quantile(q) }

// NewStats returns Stats that group records by one of Groupings; "" = one group for all.
func NewStats(by string) (*Stats, error) {
	if by != "" && !slices.Contains(Groupings, by) {
		return nil, fmt.Errorf("records cannot be grouped by %q", by)
	}
	return &Stats{by: by, groups: make(map[string]*StatsGroup)}, nil
}

// Add counts a record.
func (s *Stats) Add(r *RecordLine) {
	g := s.group(s.key(r))
	g.Calls++
	if IsFailure(r.bytes(Outcome)) {
		g.Failures++
	}
	g.BytesIn += r.Number(BytesIn)
	g.BytesOut += r.Number(BytesOut)
	g.durations.add(r.Duration())
}

// key returns the value by which a record is grouped.
func (s *Stats) key(r *RecordLine) []byte {
	switch s.by {
	case "tool":
		return r.bytes(Tool)
	case "backend":
		return r.bytes(Backend)
	case "client":
		return r.bytes(Client)
	case "principal":
		return r.bytes(Principal)
	case "outcome":
		return r.bytes(Outcome)
	case "hour":
		return s.hourOf(r)
	}
	return nil
}

// hourOf returns the local hour of a record.
func (s *Stats) hourOf(r *RecordLine) []byte {
	text := r.raw(Time)
	minute := text[:min(len(text), len(`"2006-01-02T15:04`))]
	if s.hour == nil || !bytes.Equal(s.minute, minute) {
		s.minute = append(s.minute[:0], minute...)
		s.hour = r.TimeOf(Time).Local().AppendFormat(s.hour[:0], "2006-01-02 15:00")
	}
	return s.hour
}

func (s *Stats) group(key []byte) *StatsGroup {
	key = key[:min(len(key), maxName)]
	if s.last != nil && string(key) == string(s.lastBy) {
		return s.last
	}
	g := s.groups[string(key)]
	if g == nil {
		name := string(key)
		if len(s.groups) >= maxGroups {
			name = OtherGroup
			g = s.groups[name]
		}
		if g == nil {
			g = &StatsGroup{Name: name}
			s.groups[name] = g
		}
	}
	s.last, s.lastBy = g, append(s.lastBy[:0], key...)
	return g
}

// Groups returns the groups: those by hour in the order of time, others by number of calls. A group
// without a name has the records that have no such value.
func (s *Stats) Groups() (all []*StatsGroup) {
	for _, g := range s.groups {
		all = append(all, g)
	}
	slices.SortFunc(all, func(a, b *StatsGroup) int {
		if s.by == "hour" {
			return strings.Compare(a.Name, b.Name)
		}
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
	})
	return all
}
