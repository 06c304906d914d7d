package gateway

import (
	"context"
	"crypto/sha256"
	"time"

	"mcpgateway/internal/peer"
	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

const (
	// maxTaskListeners bounds the tasks that all listeners poll; see [quota.Share].
	maxTaskListeners = 10_000
	// minPoll is the minimum interval of polling a task, and defaultPoll the interval if the task
	// has no pollInterval.
	minPoll     = 100 * time.Millisecond
	defaultPoll = time.Second
)

// pollInterval returns the interval of polling a task.
func pollInterval(task []byte) time.Duration {
	if p := protocol.TaskPollInterval(task); p > 0 {
		return max(p, minPoll)
	}
	return defaultPoll
}

// resolveTaskIDs returns the tasks of the principal that a subscriptions/listen names. Unknown ids
// are ignored. It returns an error if the ids are invalid, or if there are ids and the client has
// not declared the extension.
func resolveTaskIDs(client *statelessClient,
	r *peer.Request) (all []*statelessTask, err *wire.Error) {
	ids, err := protocol.ListenTaskIDs(r.Message)
	switch {
	case err != nil:
		return nil, err
	case ids != nil && !protocol.HasTasksExtension(client.meta.Capabilities):
		return nil, protocol.MissingTasksError()
	}
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		st := client.g.statelessTasks.find(client.principal, id)
		if st != nil && client.g.Backends.IsPermitted(client.principal, st.backend) && !seen[id] {
			seen[id] = true
			all = append(all, st)
		}
	}
	return all, nil
}

// admitTasks returns the tasks that the subscription may poll: fewer than all at the limit of
// maxTaskListeners. pollTasks must be called with the result.
func (l *listenRequest) admitTasks(all []*statelessTask) []*statelessTask {
	for n := range all {
		if !l.client.principal.AcquireShare(&l.g.taskListeners, maxTaskListeners) {
			return all[:n]
		}
	}
	return all
}

// pollTasks starts polling tasks, to notify the client of changes until ctx is done. It must be
// called after the acknowledgement. Polling is necessary because backends need not send
// notifications.
func (l *listenRequest) pollTasks(ctx context.Context, admitted []*statelessTask) {
	for _, st := range admitted {
		l.client.retain()
		release := func() {
			l.g.taskListeners.Release(l.client.principal.Key())
			l.client.release()
		}
		if !l.conn.work.Go(func() {
			defer release()
			l.pollTask(ctx, st)
		}) {
			release()
		}
	}
}

// pollTask notifies the client of each change of a task until the task has ended or is unknown, or
// ctx is done. It does not notify the client of the status working if this is the initial status.
// While the client is backlogged, changes are merged.
func (l *listenRequest) pollTask(ctx context.Context, st *statelessTask) {
	var lastSent [sha256.Size]byte // the task may be long
	first := true
	for {
		changed := st.bridge.changes()
		resp := st.handle(ctx, wire.NewRequest("0", protocol.MethodTasksGet, taskParams(st.id)),
			l.client)
		task := resp.Message.Part(wire.PartResult)
		switch {
		case ctx.Err() != nil, resp.Err == nil && task == nil:
			return // the task is unknown, or the subscription has ended
		case resp.Err == nil:
			status := protocol.TaskStatus(task)
			now := sha256.Sum256(wire.EditObject(task,
				func(key string) bool { return key == "lastUpdatedAt" || key == "_meta" }))
			isNew := now != lastSent && !(first && status == protocol.TaskWorking)
			first = false
			if isNew && l.conn.isBacklogged(st.backend) {
				break // a later poll notifies the client
			}
			if isNew {
				if m, err := protocol.NewTaskNotification(task); err != nil {
					l.conn.log().Warn("dropped a task status", "backend", st.backend, "err", err)
				} else {
					l.notify(m)
				}
			}
			if lastSent = now; protocol.IsTerminalStatus(status) {
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
