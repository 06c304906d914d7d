package gateway

import (
	"context"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	// maxTaskListeners bounds the tasks to which is listened; see share.
	maxTaskListeners = 10_000
	// A task is asked about as often as it says, but not more often than quickest, and each
	// usual if it does not say.
	minPoll     = 100 * time.Millisecond
	defaultPoll = time.Second
)

// pollInterval returns how long to wait before a task is asked about again.
func pollInterval(task []byte) time.Duration {
	if p := protocol.TaskPollInterval(task); p > 0 {
		return max(p, minPoll)
	}
	return defaultPoll
}

// resolveTaskIDs returns the tasks of which a subscriptions/listen asks to be told, as far as
// they are the client's.
func (s *Session) resolveTaskIDs(client *statelessClient, r *peer.Request) (all []*statelessTask, err *wire.Error) {
	ids, err := protocol.ListenTaskIDs(r.Message)
	switch {
	case err != nil:
		return nil, err
	case ids != nil && !protocol.HasTasksExtension(client.meta.Capabilities):
		return nil, protocol.MissingTasksError()
	}
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if st := s.g.statelessTasks.find(s.principal, id); st != nil && !seen[id] {
			seen[id] = true
			all = append(all, st)
		}
	}
	return all, nil
}

// pollTasks tells the client of changes of tasks from now on, until ctx is done. It returns
// the ids of those of which it does. Backends need not say anything of it: they are asked.
func (l *listenRequest) pollTasks(ctx context.Context, all []*statelessTask) (ids []string) {
	for _, st := range all {
		if !l.g.taskListeners.acquire(l.client.principal, maxTaskListeners) {
			return ids
		}
		ids = append(ids, st.id)
		l.client.retain()
		l.s.work.Go(func() {
			defer l.client.release()
			defer l.g.taskListeners.release(l.client.principal)
			l.pollTask(ctx, st)
		})
	}
	return ids
}

// pollTask tells the client of each change of a task, until it has ended. What is worth no
// word is that it works when the subscription begins.
func (l *listenRequest) pollTask(ctx context.Context, st *statelessTask) {
	lastSent, first := "", true
	for {
		changed := st.bridge.changes()
		resp := st.handle(ctx, wire.NewRequest("0", protocol.MethodTasksGet, taskParams(st.id)), l.client)
		task := resp.Part(wire.PartResult)
		switch {
		case ctx.Err() != nil, resp.Err == nil && task == nil:
			return // it is not known any more, or nobody wants to know
		case resp.Err == nil:
			status := protocol.TaskStatus(task)
			now := string(wire.EditObject(task, func(key string) bool { return key == "lastUpdatedAt" || key == "_meta" }))
			if now != lastSent && !(first && status == protocol.TaskWorking) {
				l.notify(protocol.NewTaskNotification(task))
			}
			lastSent, first = now, false
			if protocol.IsTerminalStatus(status) {
				return
			}
		}
		timer := time.NewTimer(pollInterval(task))
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// notify sends a notification of the subscription, or keeps it back until that is
// acknowledged.
func (l *listenRequest) notify(m wire.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.acknowledged {
		l.notifyLocked(m)
	} else if len(l.queued) < maxListenResources {
		l.queued = append(l.queued, m)
	}
}

// wakeTaskPollers notes that a backend has said so of a task: who listens to it looks again.
func (g *Gateway) wakeTaskPollers(backend string, m wire.Message) {
	for _, st := range g.statelessTasks.withBackendID(backend, stringAt(m, "params", "taskId")) {
		st.bridge.notifyChanged()
	}
}
