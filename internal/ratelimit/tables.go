package ratelimit

import (
	"container/list"
	"time"

	"mcpgateway/internal/config"
)

// A limitTable contains limits by a name of the configuration.
type limitTable map[string]*limit

// with returns a table with these limits. Those that t has too keep their level. what describes a
// limit in errors.
func (t limitTable) with(rates map[string]config.Rate, now time.Time,
	what func(name string) string) limitTable {
	next := make(limitTable)
	for name, r := range rates {
		if r.IsZero() {
			continue
		}
		one := t[name]
		if one == nil {
			one = newLimit(what(name), r)
		}
		one.configure(r, now)
		next[name] = one
	}
	return next
}

// maxSubjects bounds the subjects of authorization servers whose levels are kept. The level of the
// subject that sent no request for the longest time is forgotten first.
const maxSubjects = 10_000

// A subjectTable contains the limit of each subject that has sent a request lately.
type subjectTable struct {
	each   config.Rate
	byKey  map[string]*list.Element // of recent
	recent list.List                // of *subjectLimit, the latest first
}

// A subjectLimit is the limit of the principal with this key.
type subjectLimit struct {
	key   string
	limit *limit
}

// set changes the limit of each subject. Without a limit, the levels are forgotten.
func (s *subjectTable) set(each config.Rate, now time.Time) {
	s.each = each
	if each.IsZero() {
		s.byKey = nil
		s.recent.Init()
	}
	for e := s.recent.Front(); e != nil; e = e.Next() {
		e.Value.(*subjectLimit).limit.configure(each, now)
	}
}

// limit returns the limit of the subject with a key.
func (s *subjectTable) limit(key string) *limit {
	if e := s.byKey[key]; e != nil {
		s.recent.MoveToFront(e)
		return e.Value.(*subjectLimit).limit
	}
	if s.byKey == nil {
		s.byKey = make(map[string]*list.Element)
	}
	if len(s.byKey) >= maxSubjects {
		oldest := s.recent.Back()
		delete(s.byKey, oldest.Value.(*subjectLimit).key)
		s.recent.Remove(oldest)
	}
	one := newLimit("this user", s.each)
	s.byKey[key] = s.recent.PushFront(&subjectLimit{key, one})
	return one
}
