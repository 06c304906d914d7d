package gateway

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mcpgateway/internal/contract"
	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/quota"
	"mcpgateway/internal/ratelimit"
	"mcpgateway/internal/wire"
)

const (
	// taskListTimeout bounds the requests to backends for one tasks/list.
	taskListTimeout = 10 * time.Second
	// maxTaskPages bounds the pages that are requested from one backend.
	maxTaskPages = 1000
	// maxTaskListBytes bounds the bytes of the states of tasks in one tasks/list, apart from the
	// states that the gateway has stored.
	maxTaskListBytes = 32 << 20
)

// listTasks responds to tasks/list with the tasks of the session in one page: first the tasks
// that the backends list, in the order of the configuration, then the tasks at modern backends,
// which have no tasks/list. Other tasks in a backend's list are omitted, because they may belong
// to other clients.
func listTasks(s *Session, r *peer.Request) {
	if !wire.IsNull(r.Part(wire.PartCursor)) {
		s.fail(r, errUnknownCursor)
		return
	}
	if err := takeRate(&s.clientConn, r.Method(), "", ratelimit.FollowUp); err != nil {
		s.fail(r, err)
		return
	}
	at := s.tasks.backends()
	var backends []string
	for _, backend := range s.view().BackendsWith("tasks", "list") {
		if at[backend] {
			backends = append(backends, backend)
		}
	}
	s.goFor(r, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, taskListTimeout)
		defer cancel()
		lists := make([][][]byte, len(backends))
		var wg sync.WaitGroup
		var size quota.Bytes
		var polled [][]byte
		wg.Go(func() { polled = polledTasks(ctx, s, &size) })
		for i, backend := range backends {
			wg.Go(func() { lists[i] = backendTasks(ctx, s, backend, &size) })
		}
		wg.Wait()
		var merged [][]byte
		for _, list := range append(lists, polled) {
			merged = append(merged, list...)
		}
		r.Reply(append(append([]byte(`{"tasks":`), jsonArray(merged)...), '}'))
	})
}

// backendTasks requests a backend's list of tasks and returns the session's tasks in the list. If a
// request fails, it logs the error and returns nil. Beyond maxTaskListBytes, which size counts, it
// omits the rest of the list.
func backendTasks(ctx context.Context, s *Session, backend string, size *quota.Bytes) [][]byte {
	var all [][]byte
	params := []byte("{}")
	for range maxTaskPages {
		resp := callBackend(ctx, s.g.Backends, backend, contract.BackendRequest{
			Message: wire.NewRequest("0", protocol.MethodTasksList, params), Session: s.id})
		err := resp.Err
		if failure := resp.Message.Part(wire.PartError); err == nil && failure != nil {
			err = wire.ReadError(failure)
		}
		result := resp.Message.Part(wire.PartResult)
		list, _ := wire.Lookup(result, "tasks")
		if err == nil {
			err = protocol.CheckTaskList(list)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil // the client has cancelled or disconnected
		}
		if err != nil {
			s.log().Warn("listing tasks failed", "backend", backend, "err", err)
			return nil
		}
		full := false
		wire.EachElement(list, func(one []byte) bool {
			if listed, ok := s.tasks.toClientListed(backend, one); ok {
				if full = !size.Acquire(len(listed), maxTaskListBytes); !full {
					all = append(all, bytes.Clone(listed)) // without the rest of the page
				}
			}
			return !full
		})
		if full {
			s.log().Warn("list of tasks is incomplete: it is too long", "backend", backend)
			break
		}
		next, _ := wire.Lookup(result, "nextCursor")
		if len(next) == 0 || next[0] != '"' {
			break
		}
		params = append(append([]byte(`{"cursor":`), next...), '}')
	}
	return all
}

// polledTasks returns the session's tasks at modern backends. Tasks that have not ended are
// polled, 16 at a time. If a poll fails, or its result would exceed maxTaskListBytes, which size
// counts, the stored state of the task is returned.
func polledTasks(ctx context.Context, s *Session, size *quota.Bytes) (all [][]byte) {
	polled := slices.DeleteFunc(s.tasks.polledTasks(),
		func(p *polledTask) bool { return !s.uses(p.backend) })
	states := make([][]byte, len(polled))
	for first := 0; first < len(polled); first += 16 {
		var wg sync.WaitGroup
		for i := first; i < min(first+16, len(polled)); i++ {
			if task, final := polled[i].last(); !final &&
				!protocol.IsTerminalStatus(protocol.TaskStatus(task)) {
				wg.Go(func() {
					task := refreshPolledTask(ctx, s, polled[i])
					if size.Acquire(len(task), maxTaskListBytes) {
						states[i] = bytes.Clone(task) // without the capacity for its result
					}
				})
			}
		}
		wg.Wait()
	}
	for i, p := range polled {
		task, final := p.last()
		if states[i] != nil && !final { // not cancelled meanwhile
			task = states[i]
		}
		if task != nil {
			all = append(all, protocol.SetTaskID(task, p.clientID))
		}
	}
	return all
}

// refreshPolledTask polls a task and returns its state, nil if the poll fails.
func refreshPolledTask(ctx context.Context, s *Session, p *polledTask) []byte {
	m := wire.NewRequest("0", protocol.MethodTasksGet, taskParams(p.id))
	resp := callTask(ctx, s.g.Backends, p.backend,
		contract.BackendRequest{Message: m, Session: s.id, AllowTask: true})
	result, failure := resp.Message.Part(wire.PartResult), resp.Message.Part(wire.PartError)
	if failure != nil {
		s.tasks.noteFailure(p.backend, p.id, protocol.MethodTasksGet, failure)
	}
	if resp.Err != nil || result == nil {
		return nil
	}
	task := protocol.TaskToLegacy(result)
	p.setStatus(task)
	s.tasks.noteStatus(p.backend, p.id, protocol.TaskStatus(task))
	return task
}
