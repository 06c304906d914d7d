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

// Tasks of 2025-11-25, here called legacy, are part of the core protocol; modern tasks are the
// extension [TasksExtension]. This file converts between the two. The files tasks_ids.go,
// tasks_calls.go and tasks_input.go handle task ids, calls and inputs.
//
//	                legacy                         modern
//	created         {"task":{…}}                   {"resultType":"task",…}
//	tasks/get       {…}                            {"resultType":"complete",…,OUTCOME}
//	notification    notifications/tasks/status     notifications/tasks
//	                {…}                            {…,OUTCOME}
//	time to live    ttl                            ttlMs
//	poll interval   pollInterval                   pollIntervalMs
//	failed          an error, or a result isError  an error only
//
// OUTCOME is a result, an error, or inputRequests, see [TaskOutcome].

// The statuses of a task in both generations.
const (
	TaskWorking       = "working"
	TaskInputRequired = "input_required"
	TaskCompleted     = "completed"
	TaskFailed        = "failed"
	TaskCancelled     = "cancelled"
)

// A TaskOutcome is the response that a modern task contains, or its open input requests. A working
// task has the zero value.
type TaskOutcome struct {
	Result []byte         // result of the request that became the task
	Error  []byte         // error object of the request that became the task
	Inputs []InputRequest // open input requests
}

// TaskStatus returns the status of a task.
func TaskStatus(task []byte) string {
	status, _ := wire.Lookup(task, "status")
	return wire.Unquote(status)
}

// IsTerminalStatus reports whether a status is final because the task has ended.
func IsTerminalStatus(status string) bool {
	return status == TaskCompleted || status == TaskFailed || status == TaskCancelled
}

// TaskToModern converts a legacy task to the modern result of tasks/get with the outcome o:
//
//   - The status is completed if o has a result, even if the result is a tool error, failed if o
//     has an error, and input_required if o has inputs. A cancelled task stays cancelled, and o is
//     ignored.
//   - If o is empty, a completed, failed or input_required task is reported as working, because a
//     modern task must not have one of these statuses without the matching member.
//   - Durations become whole numbers; an invalid or missing ttl becomes null, and an invalid poll
//     interval is removed. A missing lastUpdatedAt becomes createdAt.
//   - In the result of o, the related task is removed from _meta, and a resultType, which has no
//     meaning in a legacy result, becomes "complete".
//   - In the task, the related task is removed from _meta, and members that have a meaning only in
//     modern tasks are removed. Other members of the task and of the result stay.
func TaskToModern(task []byte, o TaskOutcome) []byte {
	return buildModernTask(task, o, wire.Member{Key: "resultType", Text: []byte(`"complete"`)})
}

// SanitizeTask converts a modern server's result of tasks/get to a valid result with the client's
// task id. It removes the requestState, the members that do not belong to the status, and the
// members that a client could mistake for those of a modern result. A resultType becomes
// "complete", even if the server wrote "task", and an error is converted by [ErrorToModern]. Other
// members stay.
func SanitizeTask(task []byte, id string) []byte {
	status := TaskStatus(task)
	task = dropMembers(task, func(key string) bool {
		return key == "requestState" || key == "result" && status != TaskCompleted ||
			key == "error" && status != TaskFailed ||
			key == "inputRequests" && status != TaskInputRequired
	})
	task = withCompleteType(task)
	task = mapMember(task, "error", func(failure []byte) []byte {
		return ErrorToModern(failure, MethodToolsCall)
	})
	return ensureTaskID(task, id)
}

// SanitizeCreateTaskResult converts a modern server's result with a created task to a valid result
// with the client's task id. It removes the outcome, the input requests and the requestState, which
// must not be in such a result; a status that requires them becomes working.
func SanitizeCreateTaskResult(result []byte, id string) []byte {
	result = dropMembers(result, func(key string) bool {
		return key == "requestState" || key == "result" || key == "error" || key == "inputRequests"
	})
	if status := TaskStatus(result); status != TaskCancelled && IsTerminalStatus(status) ||
		status == TaskInputRequired {
		result = mapMember(result, "status", func([]byte) []byte { return wire.Quote(TaskWorking) })
	}
	return ensureTaskID(result, id)
}

// ensureTaskID sets the id of a modern task, even if the task has no id or an invalid id.
func ensureTaskID(task []byte, id string) []byte {
	if old, _ := wire.Lookup(task, "taskId"); len(old) > 0 && old[0] == '"' {
		return SetTaskID(task, id)
	}
	return wire.EditObject(task, nil, wire.Member{Key: "taskId", Text: wire.Quote(id)})
}

// NewTaskNotification returns the modern notification about a change of a task, for the stream of
// subscriptions/listen. task is the result of tasks/get; its resultType and _meta are removed. The
// error is that of [wire.ParseRequest] for members that must not be in params.
func NewTaskNotification(task []byte) (wire.Message, error) {
	return wire.ParseNotification(NotificationTasks, wire.EditObject(task, func(key string) bool {
		return key == "resultType" || key == "_meta"
	}))
}

// CreateTaskResultToModern converts the legacy result that contains a created task to the modern
// form. The task is converted as by TaskToModern without an outcome. Members beside the task become
// members of the result, unless the task has a member of that name or the name has a meaning in
// modern tasks.
func CreateTaskResultToModern(result []byte) []byte {
	task, _ := wire.Lookup(result, "task")
	put := []wire.Member{{Key: "resultType", Text: []byte(`"task"`)}}
	wire.Members(StripRelatedTask(result), func(key string, value []byte, _ int) {
		if existing, _ := wire.Lookup(task, key); key != "task" && existing == nil &&
			!isModernTaskMember(key) {
			put = append(put, wire.Member{Key: key, Text: value})
		}
	})
	return buildModernTask(task, TaskOutcome{}, put...)
}

func buildModernTask(task []byte, o TaskOutcome, put ...wire.Member) []byte {
	status := TaskStatus(task)
	switch {
	case status == TaskCancelled:
	case o.Result != nil:
		status = TaskCompleted
		put = append(put, wire.Member{Key: "result",
			Text: withCompleteType(StripRelatedTask(o.Result))})
	case o.Error != nil:
		status = TaskFailed
		put = append(put, wire.Member{Key: "error", Text: o.Error})
	case len(o.Inputs) > 0:
		status = TaskInputRequired
		put = append(put, wire.Member{Key: "inputRequests", Text: encodeInputRequests(o.Inputs)})
	case IsTerminalStatus(status), status == TaskInputRequired:
		status = TaskWorking
	}
	put = append(put, statusAndTimes(task, status)...)
	put = append(put, durations(task, "ttlMs", "pollIntervalMs")...)
	drop := func(key string) bool {
		return key == "ttl" || key == "pollInterval" || isModernTaskMember(key)
	}
	return wire.EditObject(StripRelatedTask(task), drop, put...)
}

// withCompleteType sets a resultType, if there is one, to "complete". It removes members whose
// names differ from those of modern results only in case.
func withCompleteType(result []byte) []byte {
	result = dropMembers(result, differsInCaseOnly)
	return mapMember(result, "resultType", func([]byte) []byte { return []byte(`"complete"`) })
}

// isModernTaskMember reports whether a member has a meaning only in modern tasks or results.
func isModernTaskMember(key string) bool {
	switch key {
	case "resultType", "ttlMs", "pollIntervalMs", "result", "error", "inputRequests",
		"requestState":
		return true
	}
	return false
}

// TaskToLegacy converts a modern task to the result of tasks/get in 2025-11-25. If the task
// completed with a tool error, its legacy status is failed. Durations become whole numbers; an
// invalid or missing ttl becomes null, and an invalid poll interval is removed. A missing
// lastUpdatedAt becomes createdAt. Members that only modern tasks and results have are removed. All
// other members stay.
func TaskToLegacy(task []byte) []byte {
	status := TaskStatus(task)
	if wrong, _ := wire.Lookup(task, "result", "isError"); status == TaskCompleted &&
		string(wrong) == "true" {
		status = TaskFailed
	}
	put := append(statusAndTimes(task, status), durations(task, "ttl", "pollInterval")...)
	meta, _ := wire.Lookup(task, "_meta")
	rest := wire.EditObject(meta, isModernMetaKey)
	if string(rest) != "{}" {
		put = append(put, wire.Member{Key: "_meta", Text: rest})
	}
	drop := func(key string) bool {
		return key == "ttl" || key == "pollInterval" || key == "_meta" || isModernTaskMember(key)
	}
	return wire.EditObject(task, drop, put...)
}

// CreateTaskResultToLegacy converts the modern result that contains a created task to the form of
// 2025-11-25. The _meta of the task becomes that of the result.
func CreateTaskResultToLegacy(result []byte) []byte {
	task := TaskToLegacy(result)
	var put []wire.Member
	if meta, _ := wire.Lookup(task, "_meta"); meta != nil {
		put = []wire.Member{{Key: "_meta", Text: meta}}
		task = wire.EditObject(task, func(key string) bool { return key == "_meta" })
	}
	return wire.EditObject(nil, nil, append(put, wire.Member{Key: "task", Text: task})...)
}

// NewLegacyTask returns a legacy task that was created and last updated at the time at, and has an
// unlimited ttl.
func NewLegacyTask(id, status string, at time.Time) []byte {
	return wire.Encode(struct {
		ID      string    `json:"taskId"`
		Status  string    `json:"status"`
		Created time.Time `json:"createdAt"`
		Updated time.Time `json:"lastUpdatedAt"`
		TTL     *int      `json:"ttl"`
	}{id, status, at.UTC(), at.UTC(), nil})
}

// WithStatusCancelled returns a legacy task with status cancelled, the result of tasks/cancel.
func WithStatusCancelled(task []byte) []byte {
	return wire.EditObject(task, nil, wire.Member{Key: "status", Text: wire.Quote(TaskCancelled)})
}

// ReadTaskOutcome reads the outcome of a modern task. It returns an error if the members that
// belong to the status are missing or ambiguous, if the result is not complete, or if the status is
// unknown.
func ReadTaskOutcome(task []byte) (o TaskOutcome, err error) {
	result, _ := wire.Lookup(task, "result")
	failure, _ := wire.Lookup(task, "error")
	if err := checkMembers(result, "its result", "resultType", "inputRequests",
		"requestState"); err != nil {
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
		err = fmt.Errorf("its status is %s, but its result or error is missing", status)
	case status != TaskWorking && status != TaskCancelled:
		err = fmt.Errorf("its status is %q", status)
	}
	return o, err
}

// TaskPollInterval returns the poll interval of a task of either generation, 0 if the task does not
// specify a valid one.
func TaskPollInterval(task []byte) time.Duration {
	ms, _ := parseMilliseconds(firstPresent(task, "pollInterval", "pollIntervalMs"), math.Ceil)
	return time.Duration(ms) * time.Millisecond
}

// TaskTTL returns the time to live of a task of either generation, counted from its creation; ok is
// false if it is unspecified, invalid or unlimited.
func TaskTTL(task []byte) (life time.Duration, ok bool) {
	ms, ok := parseMilliseconds(firstPresent(task, "ttl", "ttlMs"), math.Floor)
	return time.Duration(ms) * time.Millisecond, ok
}

func firstPresent(task []byte, keys ...string) []byte {
	i := slices.IndexFunc(keys, func(key string) bool {
		value, _ := wire.Lookup(task, key)
		return !wire.IsNull(value)
	})
	if i < 0 {
		return nil
	}
	value, _ := wire.Lookup(task, keys[i])
	return value
}

// statusAndTimes returns the member for the status. If the task has a createdAt but no
// lastUpdatedAt, it also returns a lastUpdatedAt, which was added to the specification later than
// createdAt.
func statusAndTimes(task []byte, status string) []wire.Member {
	put := []wire.Member{{Key: "status", Text: wire.Quote(status)}}
	created, _ := wire.Lookup(task, "createdAt")
	if updated, _ := wire.Lookup(task, "lastUpdatedAt"); wire.IsNull(updated) &&
		!wire.IsNull(created) {
		put = append(put, wire.Member{Key: "lastUpdatedAt", Text: created})
	}
	return put
}

// durations returns members with these names for the ttl and the poll interval of a task of either
// generation, as whole numbers. The ttl is rounded down, the interval up. An invalid or missing ttl
// becomes null; an interval that is invalid, missing or 0 is left out.
func durations(task []byte, ttl, interval string) []wire.Member {
	put := []wire.Member{{Key: ttl, Text: []byte("null")}}
	if ms, ok := parseMilliseconds(firstPresent(task, "ttl", "ttlMs"), math.Floor); ok {
		put[0].Text = strconv.AppendInt(nil, ms, 10)
	}
	if ms, ok := parseMilliseconds(firstPresent(task, "pollInterval", "pollIntervalMs"),
		math.Ceil); ok && ms > 0 {
		put = append(put, wire.Member{Key: interval, Text: strconv.AppendInt(nil, ms, 10)})
	}
	return put
}

// maxMilliseconds is 100 years. A longer ttl counts as unlimited, a longer poll interval as
// unspecified.
const maxMilliseconds = 100 * 365 * 24 * 60 * 60 * 1000

func parseMilliseconds(number []byte, round func(float64) float64) (ms int64, ok bool) {
	f, err := strconv.ParseFloat(string(number), 64)
	if f = round(f); err != nil || f < 0 || f > maxMilliseconds {
		return 0, false
	}
	return int64(f), true
}
