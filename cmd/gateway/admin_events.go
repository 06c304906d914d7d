package main

import (
	"context"
	"sync"
	"time"

	"mcpgateway/catalog"
	"mcpgateway/internal/activity"
	"mcpgateway/internal/adminapi"
	"mcpgateway/internal/adminserver"
)

// Delays of a status event after a change, so that many changes cause one event.
const (
	delayAfterChange = 100 * time.Millisecond
	delayAfterCall   = time.Second
	eventBuffer      = 512 // calls that wait for a slow reader
)

// adminEvents shows what happens.
type adminEvents struct{ *adminService }

// Events implements adminserver.EventSource.
func (a adminEvents) Events(
	ctx context.Context, f adminserver.EventFilter, send func(*adminapi.AdminEvent) error,
) {
	s := &eventStream{adminService: a.adminService, EventFilter: f, send: send}
	buffer := 1 // only to notice that there are calls
	if f.Has(adminapi.CallEvents) {
		buffer = eventBuffer
	}
	s.calls = a.activity.Subscribe(buffer)
	defer s.calls.Close()
	ctx, end := context.WithCancel(ctx)
	var following sync.WaitGroup
	defer following.Wait()
	defer end()
	s.logs = make(chan logBatch)
	if f.Has(adminapi.LogEvents) {
		following.Go(func() { adminLogs(a).follow(ctx, f.Logs, s.logs) })
	}
	s.run(ctx)
}

// An eventStream sends the events that a reader has asked for.
type eventStream struct {
	*adminService
	adminserver.EventFilter
	send  func(*adminapi.AdminEvent) error
	calls *activity.Subscription
	logs  chan logBatch
	begun bool        // a logBatch was sent
	timer *time.Timer // for the next status event
	due   time.Time   // of the next status event; zero = none is due
}

// run sends events until ctx is done or sending fails.
func (s *eventStream) run(ctx context.Context) {
	s.timer = time.NewTimer(0) // for the first status
	defer s.timer.Stop()
	s.due = time.Now()
	view := s.backends.View()
	changed, file := s.backends.StatusChanged(), s.reloader.File().Changed
	for err := error(nil); err == nil; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			changed = s.backends.StatusChanged()
			s.sendStatusIn(delayAfterChange)
		case <-file:
			file = s.reloader.File().Changed
			s.sendStatusIn(delayAfterChange)
		case <-view.Changed:
			view = s.backends.View()
			s.sendStatusIn(delayAfterChange)
			err = s.sendCatalog(view)
		case c := <-s.calls.C:
			s.sendStatusIn(delayAfterCall)
			err = s.sendCall(&c)
		case b := <-s.logs:
			err = s.sendLogs(b)
		case <-s.timer.C:
			s.due = time.Time{}
			err = s.sendStatus()
		}
	}
}

// sendStatusIn sends a status event after a delay, unless one is due earlier.
func (s *eventStream) sendStatusIn(delay time.Duration) {
	if at := time.Now().Add(delay); s.due.IsZero() || at.Before(s.due) {
		s.due = at
		s.timer.Reset(delay)
	}
}

func (s *eventStream) sendStatus() error {
	if !s.Has(adminapi.StatusEvents) {
		return nil
	}
	status := adminStatus{s.adminService}.Status()
	return s.send(&adminapi.AdminEvent{Type: adminapi.StatusEvents, Status: &status})
}

func (s *eventStream) sendCatalog(v *catalog.View) error {
	if !s.Has(adminapi.CatalogEvents) {
		return nil
	}
	t := totalOf(v.Snapshot)
	return s.send(&adminapi.AdminEvent{Type: adminapi.CatalogEvents,
		Catalog: &adminapi.CatalogState{Lists: listCounts(t.counts)}})
}

// sendCall sends a call, and before it how many were lost.
func (s *eventStream) sendCall(c *activity.CallRecord) error {
	if !s.Has(adminapi.CallEvents) {
		return nil
	}
	if err := s.sendLost(adminapi.LostCount{Calls: s.calls.TakeLost()}); err != nil {
		return err
	}
	now := time.Now()
	if !selectsCall(&s.EventFilter.Calls, c, now) {
		return nil
	}
	status := adminCalls{s.adminService}.callStatus(c, now)
	return s.send(&adminapi.AdminEvent{Type: adminapi.CallEvents, Call: &status})
}

// sendLogs sends lines of the log, and before them how many were lost.
func (s *eventStream) sendLogs(b logBatch) error {
	limit := len(b.lines)
	if !s.begun && s.Logs.Limit > 0 { // the lines that were in memory
		limit = s.Logs.Limit
	}
	s.begun = true
	if err := s.sendLost(adminapi.LostCount{Logs: b.lost}); err != nil {
		return err
	}
	for _, line := range (adminLogs{s.adminService}).entries(b.lines, s.Logs, limit) {
		if err := s.send(&adminapi.AdminEvent{Type: adminapi.LogEvents, Log: &line}); err != nil {
			return err
		}
	}
	return nil
}

// sendLost says how many events were lost, unless none was.
func (s *eventStream) sendLost(n adminapi.LostCount) error {
	if n == (adminapi.LostCount{}) {
		return nil
	}
	return s.send(&adminapi.AdminEvent{Type: adminapi.LostEvents, Lost: &n})
}
