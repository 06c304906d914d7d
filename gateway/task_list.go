package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	// listing is how long the backends have for their lists of tasks.
	listing = 10 * time.Second
	// maxTaskPages bounds the pages of one backend's list.
	maxTaskPages = 1000
)

// listTasks answers with the tasks of this session, in one page: as each backend
// tells of them, in the order of the configuration; then those at backends of the stateless
// era, which list none. What a backend lists beyond
// them is somebody else's, perhaps, and left out.
func (s *Session) listTasks(r *peer.Request) {
	if !wire.IsNull(r.Part(wire.PartCursor)) {
		s.fail(r, wire.Errorf(wire.CodeInvalidParams, "Invalid params: unknown cursor"))
		return
	}
	at := s.tasks.at()
	var asked []string
	for _, backend := range s.g.Backends.View().BackendsWith("tasks", "list") {
		if at[backend] {
			asked = append(asked, backend)
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, listing)
	if !r.OnCancel(withdrawal(cancel)) {
		cancel()
		return
	}
	s.work.Go(func() {
		defer cancel()
		lists := make([][][]byte, len(asked))
		var all sync.WaitGroup
		var pursued [][]byte
		all.Go(func() { pursued = s.tasksPursued(ctx) })
		for i, backend := range asked {
			all.Go(func() { lists[i] = s.tasksAt(ctx, backend) })
		}
		all.Wait()
		var merged [][]byte
		for _, list := range append(lists, pursued) {
			merged = append(merged, list...)
		}
		r.Reply(append(append([]byte(`{"tasks":`), array(merged)...), '}'))
	})
}

// withdrawal is the Owner of a request for which a context stands: it ends that.
type withdrawal context.CancelFunc

// Cancelled implements peer.CancelHandler.
func (end withdrawal) HandleCancel([]byte) { end() }

// tasksAt returns the session's tasks as a backend lists them.
func (s *Session) tasksAt(ctx context.Context, backend string) [][]byte {
	var all [][]byte
	params := []byte("{}")
	for range maxTaskPages {
		m := s.inquire(ctx, backend, wire.NewRequest("0", "tasks/list", params))
		err := m.Err
		if failure := m.Part(wire.PartError); err == nil && failure != nil {
			err = wire.ReadError(failure)
		}
		result := m.Part(wire.PartResult)
		list, _ := wire.Lookup(result, "tasks")
		if err == nil {
			err = protocol.CheckTaskList(list)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil // the client, or the session, is gone
		}
		if err != nil {
			s.log().Warn("the tasks of a backend are not listed", "backend", backend, "err", err)
			return nil
		}
		wire.EachElement(list, func(one []byte) bool {
			if own, ok := s.exposeListed(backend, one); ok {
				all = append(all, own)
			}
			return true
		})
		next, _ := wire.Lookup(result, "nextCursor")
		if len(next) == 0 || next[0] != '"' {
			break
		}
		params = append(append([]byte(`{"cursor":`), next...), '}')
	}
	return all
}

// tasksPursued returns the session's tasks at backends of the stateless era. Those that have
// not ended are asked about, some at a time; those of which nothing is heard in time are as
// they were.
func (s *Session) tasksPursued(ctx context.Context) (all [][]byte) {
	pursued := s.tasks.pursuits()
	for some := range slices.Chunk(pursued, 16) {
		var asking sync.WaitGroup
		for _, p := range some {
			if task, final := p.last(); !final && !protocol.IsTerminalStatus(protocol.TaskStatus(task)) {
				asking.Go(func() { s.lookAt(ctx, p) })
			}
		}
		asking.Wait()
	}
	for _, p := range pursued {
		if task, _ := p.last(); task != nil {
			all = append(all, protocol.SetTaskID(task, p.exposed))
		}
	}
	return all
}

func (s *Session) lookAt(ctx context.Context, p *pursuit) {
	m := wire.NewRequest("0", "tasks/get", aboutTask(p.id))
	a := s.g.inquireOfTask(ctx, p.backend, m, &peer.Call{SessionID: s.id, AllowTask: true})
	if task := a.Part(wire.PartResult); a.Err == nil && task != nil {
		p.heard(protocol.TaskToLegacy(task))
		s.taskIs(p.backend, p.id, protocol.TaskStatus(task))
	}
}

// exposeListed returns a task of a backend's list as the client knows it, if it
// is the session's.
func (s *Session) exposeListed(backend string, one []byte) ([]byte, bool) {
	literal, at := wire.Lookup(one, "taskId")
	id := wire.Unquote(literal)
	exposed, ok := s.tasks.expose(backend, id)
	if !ok {
		return nil, false
	}
	status, _ := wire.Lookup(one, "status")
	s.taskIs(backend, id, wire.Unquote(status))
	if exposed == id {
		return one, true
	}
	text := append(append([]byte(nil), one[:at]...), wire.Quote(exposed)...)
	return append(text, one[at+len(literal):]...), true
}

// inquire asks a backend something on the session's own behalf, and waits.
func (s *Session) inquire(ctx context.Context, backend string, m wire.Message) peer.Response {
	return s.g.inquire(ctx, backend, m, &peer.Call{SessionID: s.id})
}
