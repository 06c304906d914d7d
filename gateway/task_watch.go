package gateway

import (
	"context"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	// maxWatched bounds the tasks to which is listened; see share.
	maxWatched = 10_000
	// A task is asked about as often as it says, but not more often than quickest, and each
	// usual if it does not say.
	quickest = 100 * time.Millisecond
	usual    = time.Second
)

// pace returns how long to wait before a task is asked about again.
func pace(task []byte) time.Duration {
	if p := protocol.TaskPollInterval(task); p > 0 {
		return max(p, quickest)
	}
	return usual
}

// watched returns the tasks of which a subscriptions/listen asks to be told, as far as
// they are the client's.
func (s *Session) watched(guest *guest, r *peer.Request) (all []*job, err *wire.Error) {
	ids, err := protocol.ListenTaskIDs(r.Message)
	switch {
	case err != nil:
		return nil, err
	case ids != nil && !protocol.HasTasksExtension(guest.stamp.Capabilities):
		return nil, protocol.MissingTasksError()
	}
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if j := s.g.jobs.find(s.principal, id); j != nil && !seen[id] {
			seen[id] = true
			all = append(all, j)
		}
	}
	return all, nil
}

// watch tells the client of changes of tasks from now on, until ctx is done. It returns
// the ids of those of which it does. Backends need not say anything of it: they are asked.
func (l *listen) watch(ctx context.Context, all []*job) (ids []string) {
	for _, j := range all {
		if !l.g.watching.enter(l.guest.principal, maxWatched) {
			return ids
		}
		ids = append(ids, j.id)
		l.guest.stayOn()
		l.s.work.Go(func() {
			defer l.guest.leave()
			defer l.g.watching.leave(l.guest.principal)
			l.follow(ctx, j)
		})
	}
	return ids
}

// follow tells the client of each change of a task, until it has ended. What is worth no
// word is that it works when the subscription begins.
func (l *listen) follow(ctx context.Context, j *job) {
	said, first := "", true
	for {
		news := j.held.changed()
		a := j.do(ctx, wire.NewRequest("0", string(mcp.MethodTasksGet), aboutTask(j.id)), l.guest)
		task := a.Part(wire.PartResult)
		switch {
		case ctx.Err() != nil, a.Err == nil && task == nil:
			return // it is not known any more, or nobody wants to know
		case a.Err == nil:
			status := protocol.TaskStatus(task)
			now := string(wire.EditObject(task, func(key string) bool { return key == "lastUpdatedAt" || key == "_meta" }))
			if now != said && !(first && status == protocol.TaskWorking) {
				l.say(protocol.NewTaskNotification(task))
			}
			said, first = now, false
			if protocol.IsTerminalStatus(status) {
				return
			}
		}
		timer := time.NewTimer(pace(task))
		select {
		case <-timer.C:
		case <-news:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// say sends a notification of the subscription, or keeps it back until that is
// acknowledged.
func (l *listen) say(m wire.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acked {
		l.sayLocked(m)
	} else if len(l.held) < maxListened {
		l.held = append(l.held, m)
	}
}

// taskChanged notes that a backend has said so of a task: who listens to it looks again.
func (g *Gateway) taskChanged(backend string, m wire.Message) {
	for _, j := range g.jobs.at(backend, stringAt(m, "params", "taskId")) {
		j.held.stir()
	}
}
