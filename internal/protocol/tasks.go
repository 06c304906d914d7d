package protocol

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"mcpgateway/internal/wire"
)

// Tasks of 2025-11-25, here called classic, are of the core; those of the stateless
// era, here called modern, are of the extension [TasksExtension]. This file makes the
// one of the other; tasks_ids.go, tasks_calls.go and tasks_input.go have what is
// around them.
//
//	            classic                            modern
//	made        {"task":{…}}                       {"resultType":"task",…}
//	tasks/get   {…}                                {"resultType":"complete",…,result|error|inputRequests}
//	told        notifications/tasks/status {…}     notifications/tasks {…,result|error|inputRequests}
//	lives       ttl                                ttlMs
//	ask again   pollInterval                       pollIntervalMs
//	failed      an error, or a result isError      an error alone

// The statuses of a task, the same in both.
const (
	TaskWorking       = "working"
	TaskInputRequired = "input_required"
	TaskCompleted     = "completed"
	TaskFailed        = "failed"
	TaskCancelled     = "cancelled"
)

// MethodNotificationTasks is the notification that a modern task has changed.
const MethodNotificationTasks = "notifications/tasks"

// An TaskOutcome is what a modern task says beyond its status: how it ended, or what it
// waits for. The zero value is that of one that works.
type TaskOutcome struct {
	Result []byte         // of the request that became the task
	Error  []byte         // the error object with which that request was answered
	Inputs []InputRequest // the questions that are open
}

// TaskStatus returns the status of a task.
func TaskStatus(task []byte) string {
	status, _ := wire.Lookup(task, "status")
	return wire.Unquote(status)
}

// IsTerminalStatus reports whether a task of that status has ended, so that its status is not
// going to change.
func IsTerminalStatus(status string) bool {
	return status == TaskCompleted || status == TaskFailed || status == TaskCancelled
}

// TaskToModern returns a classic task as tasks/get answers with it in the stateless era.
// How it ended is told by o, and the status is the one that goes with it: a task that
// has ended with a result has completed, be the result an error of the tool; one that
// has ended without o telling how is said to be working still, for none may say the one
// without the other. But one that was cancelled is just that. Durations become whole
// numbers, a ttl that cannot be one is null. All other members stay as they are, and so
// do the bytes of the outcome, but for the related-task in the _meta of a result and a
// resultType of its, which means nothing in the session era.
func TaskToModern(task []byte, o TaskOutcome) []byte {
	return modernTask(task, o, wire.Member{Key: "resultType", Text: []byte(`"complete"`)})
}

// SanitizeTask returns what a modern server has answered to tasks/get, by the id that the
// client knows, as it is passed on: nothing is said beyond what a task of its status says,
// and the type is the one that there is for it, be it that the server says that it is a
// task. All else stays as it is, byte for byte.
func SanitizeTask(task []byte, id string) []byte {
	status := TaskStatus(task)
	task = strip(task, func(key string) bool {
		return key == "requestState" || key == "result" && status != TaskCompleted ||
			key == "error" && status != TaskFailed || key == "inputRequests" && status != TaskInputRequired
	})
	task = untyped(task)
	task = mapMember(task, "error", func(failure []byte) []byte { return ErrorToModern(failure, "tools/call") })
	return nameTask(task, id)
}

// SanitizeCreateTaskResult is SanitizeTask for a result that says that a task was made. How it ended,
// and what it waits for, is not said there.
func SanitizeCreateTaskResult(result []byte, id string) []byte {
	result = strip(result, func(key string) bool {
		return key == "requestState" || key == "result" || key == "error" || key == "inputRequests"
	})
	if status := TaskStatus(result); status != TaskCancelled && IsTerminalStatus(status) || status == TaskInputRequired {
		result = mapMember(result, "status", func([]byte) []byte { return wire.Quote(TaskWorking) })
	}
	return nameTask(result, id)
}

// nameTask is [SetTaskID] for a modern task, which has an id then even if it had none, or
// none that could be read.
func nameTask(task []byte, id string) []byte {
	if was, _ := wire.Lookup(task, "taskId"); len(was) > 0 && was[0] == '"' {
		return SetTaskID(task, id)
	}
	return wire.EditObject(task, nil, wire.Member{Key: "taskId", Text: wire.Quote(id)})
}

// NewTaskNotification returns the notification that a task has changed, for a listen of the
// stateless era; task is what tasks/get has answered.
func NewTaskNotification(task []byte) wire.Message {
	return wire.NewNotification(MethodNotificationTasks, wire.EditObject(task, func(key string) bool { return key == "resultType" || key == "_meta" }))
}

// CreateTaskResultToModern returns the classic result that says that a task was made as clients of
// the stateless era read it. What stands beside the task in it stands in it then, unless
// the task has a member of that name.
func CreateTaskResultToModern(result []byte) []byte {
	task, _ := wire.Lookup(result, "task")
	put := []wire.Member{{Key: "resultType", Text: []byte(`"task"`)}}
	wire.Members(StripRelatedTask(result), func(key string, value []byte, _ int) {
		if there, _ := wire.Lookup(task, key); key != "task" && there == nil && !isModern(key) {
			put = append(put, wire.Member{Key: key, Text: value})
		}
	})
	return modernTask(task, TaskOutcome{}, put...)
}

func modernTask(task []byte, o TaskOutcome, put ...wire.Member) []byte {
	status := TaskStatus(task)
	switch {
	case status == TaskCancelled:
	case o.Result != nil:
		status = TaskCompleted
		put = append(put, wire.Member{Key: "result", Text: untyped(StripRelatedTask(o.Result))})
	case o.Error != nil:
		status = TaskFailed
		put = append(put, wire.Member{Key: "error", Text: o.Error})
	case len(o.Inputs) > 0:
		status = TaskInputRequired
		put = append(put, wire.Member{Key: "inputRequests", Text: writeRequests(o.Inputs)})
	case IsTerminalStatus(status), status == TaskInputRequired:
		status = TaskWorking
	}
	put = append(put, statusAndTimes(task, status)...)
	put = append(put, durations(task, "ttlMs", "pollIntervalMs")...)
	drop := func(key string) bool { return key == "ttl" || key == "pollInterval" || isModern(key) }
	return wire.EditObject(StripRelatedTask(task), drop, put...)
}

// untyped returns a result in which a resultType means nothing: if it has one it is
// complete. Members that a client could take for one are removed.
func untyped(result []byte) []byte {
	result = strip(result, otherCase)
	return mapMember(result, "resultType", func([]byte) []byte { return []byte(`"complete"`) })
}

// isModern reports whether a member has a meaning in modern tasks, or in modern results
// that are none, so that it cannot be taken over from a classic one.
func isModern(key string) bool {
	switch key {
	case "resultType", "ttlMs", "pollIntervalMs", "result", "error", "inputRequests", "requestState":
		return true
	}
	return false
}

// TaskToLegacy returns a modern task as tasks/get answers with it in 2025-11-25. One that
// has completed with an error of the tool has failed there. Durations become whole
// numbers, a ttl that cannot be one is null. All other members stay as they are.
func TaskToLegacy(task []byte) []byte {
	status := TaskStatus(task)
	if wrong, _ := wire.Lookup(task, "result", "isError"); status == TaskCompleted && string(wrong) == "true" {
		status = TaskFailed
	}
	put := append(statusAndTimes(task, status), durations(task, "ttl", "pollInterval")...)
	meta, _ := wire.Lookup(task, "_meta")
	rest := wire.EditObject(meta, isStamp)
	if string(rest) != "{}" {
		put = append(put, wire.Member{Key: "_meta", Text: rest})
	}
	drop := func(key string) bool { return key == "ttl" || key == "pollInterval" || key == "_meta" || isModern(key) }
	return wire.EditObject(task, drop, put...)
}

// CreateTaskResultToLegacy returns the modern result that says that a task was made as clients of
// 2025-11-25 read it.
func CreateTaskResultToLegacy(result []byte) []byte {
	task := TaskToLegacy(result)
	var put []wire.Member
	if meta, _ := wire.Lookup(task, "_meta"); meta != nil {
		put = []wire.Member{{Key: "_meta", Text: meta}}
		task = wire.EditObject(task, func(key string) bool { return key == "_meta" })
	}
	return wire.EditObject(nil, nil, append(put, wire.Member{Key: "task", Text: task})...)
}

// NewLegacyTask returns a classic task that a server of 2025-11-25 would have made of a
// request, made and changed at a time. It may live for ever.
func NewLegacyTask(id, status string, at time.Time) []byte {
	return wire.Encode(struct {
		ID      string    `json:"taskId"`
		Status  string    `json:"status"`
		Created time.Time `json:"createdAt"`
		Updated time.Time `json:"lastUpdatedAt"`
		TTL     *int      `json:"ttl"`
	}{id, status, at.UTC(), at.UTC(), nil})
}

// WithStatusCancelled returns a classic task with the status that tasks/cancel answers with.
func WithStatusCancelled(task []byte) []byte {
	return wire.EditObject(task, nil, wire.Member{Key: "status", Text: wire.Quote(TaskCancelled)})
}

// ReadTaskOutcome reads how a modern task ended, or what it waits for. One that does not say
// what its status promises is an error.
func ReadTaskOutcome(task []byte) (o TaskOutcome, err error) {
	result, _ := wire.Lookup(task, "result")
	failure, _ := wire.Lookup(task, "error")
	if err := checkNames(result, "its result", "resultType", "inputRequests", "requestState"); err != nil {
		return TaskOutcome{}, err
	}
	switch status := TaskStatus(task); {
	case status == TaskCompleted && wire.IsObject(result) && ResultType(result) != ResultComplete:
		err = errors.New("it has completed with a result that is not complete")
	case status == TaskCompleted && wire.IsObject(result):
		o.Result = result
	case status == TaskFailed && wire.IsObject(failure):
		o.Error = failure
	case status == TaskInputRequired:
		o.Inputs, _, err = ReadInputRequests(task)
		if err == nil && len(o.Inputs) == 0 {
			err = errors.New("it has no inputRequests")
		}
	case status == TaskCompleted, status == TaskFailed:
		err = fmt.Errorf("it has %s and does not say how", status)
	case status != TaskWorking && status != TaskCancelled:
		err = fmt.Errorf("its status is %q", status)
	}
	return o, err
}

// TaskPollInterval returns how long to wait before a task, of either kind, is asked about anew; 0
// if it does not say.
func TaskPollInterval(task []byte) time.Duration {
	ms, _ := milliseconds(either(task, "pollInterval", "pollIntervalMs"), math.Ceil)
	return time.Duration(ms) * time.Millisecond
}

// TaskTTL returns how long a task, of either kind, is kept from when it was made; not ok
// means that it does not say, or that it is for ever.
func TaskTTL(task []byte) (life time.Duration, ok bool) {
	ms, ok := milliseconds(either(task, "ttl", "ttlMs"), math.Floor)
	return time.Duration(ms) * time.Millisecond, ok
}

func either(task []byte, keys ...string) []byte {
	i := slices.IndexFunc(keys, func(key string) bool { value, _ := wire.Lookup(task, key); return !wire.IsNull(value) })
	if i < 0 {
		return nil
	}
	value, _ := wire.Lookup(task, keys[i])
	return value
}

// statusAndTimes returns the status, and when the task was changed last, if that is
// missing: it came later than the rest.
func statusAndTimes(task []byte, status string) []wire.Member {
	put := []wire.Member{{Key: "status", Text: wire.Quote(status)}}
	created, _ := wire.Lookup(task, "createdAt")
	if updated, _ := wire.Lookup(task, "lastUpdatedAt"); wire.IsNull(updated) && !wire.IsNull(created) {
		put = append(put, wire.Member{Key: "lastUpdatedAt", Text: created})
	}
	return put
}

// durations returns those of a task, of either kind, by these names, as whole numbers:
// it is not to be kept for longer than it says, nor asked about sooner.
func durations(task []byte, ttl, interval string) []wire.Member {
	put := []wire.Member{{Key: ttl, Text: []byte("null")}}
	if ms, ok := milliseconds(either(task, "ttl", "ttlMs"), math.Floor); ok {
		put[0].Text = strconv.AppendInt(nil, ms, 10)
	}
	if ms, ok := milliseconds(either(task, "pollInterval", "pollIntervalMs"), math.Ceil); ok && ms > 0 {
		put = append(put, wire.Member{Key: interval, Text: strconv.AppendInt(nil, ms, 10)})
	}
	return put
}

// maxMilliseconds is a century: what is said to be longer is not limited.
const maxMilliseconds = 100 * 365 * 24 * 60 * 60 * 1000

func milliseconds(number []byte, round func(float64) float64) (ms int64, ok bool) {
	f, err := strconv.ParseFloat(string(number), 64)
	if f = round(f); err != nil || f < 0 || f > maxMilliseconds {
		return 0, false
	}
	return int64(f), true
}
