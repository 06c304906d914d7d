package wire

import (
	"fmt"
	"strings"
	"testing"
)

// Members that decide the routing of a message must be unique and spelled exactly. Otherwise two
// readers of the message could differ.
func TestAmbiguousRoutingMembers_F_SEC_4(t *testing.T) {
	for _, path := range []string{
		"jsonrpc", "id", "method", "params",
		"params.name", "params.arguments", "params.uri", "params.taskId", "params.task",
		"params.ref", "params.level", "params.cursor",
		"params.requestId", "params.progressToken", "params._meta", "params.elicitationId",
		"params.inputResponses", "params.requestState",
		"params.ref.type", "params.ref.name", "params.ref.uri",
		"params._meta.progressToken", "params._meta.io.modelcontextprotocol/related-task",
		"params._meta.io.modelcontextprotocol/related-task.taskId",
	} {
		for _, id := range []string{`"id":1,`, ""} {
			for name, change := range map[string]func(key, value string) string{
				"as it is": func(key, value string) string {
					return fmt.Sprintf("%q:%s", key, value)
				},
				"twice": func(key, value string) string {
					return fmt.Sprintf("%q:%s,%q:%s", key, value, key, value)
				},
				"escaped twice": func(key, value string) string {
					return fmt.Sprintf(`%q:%s,"\u%04x%s":%s`, key, value, key[0], key[1:], value)
				},
				"other case": func(key, value string) string {
					return fmt.Sprintf("%q:%s", swapCase(key), value)
				},
				"both cases": func(key, value string) string {
					return fmt.Sprintf("%q:%s,%q:%s", key, value, swapCase(key), value)
				},
				"both, null": func(key, value string) string {
					return fmt.Sprintf("%q:%s,%q:null", key, value, swapCase(key))
				},
			} {
				if path == "id" && id == "" {
					continue
				}
				text := routed(id, path, change)
				m, err := Parse([]byte(text))
				if name == "as it is" {
					if err != nil {
						t.Errorf("%s: %v", text, err)
					}
					continue
				}
				e, _ := err.(*Error)
				if e == nil || e.Code != CodeInvalidRequest || m.Kind() != Invalid {
					t.Errorf("%s %s: %v", path, name, err)
					continue
				}
				if id != "" && path != "id" && m.ID() != "1" {
					t.Errorf("%s %s: the error has the id %q", path, name, m.ID())
				}
			}
		}
	}
}

// encoding/json treats the letter ſ like s, and the Kelvin sign like k. Parse does the same.
func TestRoutingMembersInUnicodeCase_F_SEC_4(t *testing.T) {
	for _, params := range []string{
		`"taſkId":"x"`, `"ta\u017fkId":"x"`, `"tas\u212aId":"x"`, `"task\u0049d":"x","taskId":"y"`,
		`"taſk":{}`,
		`"_meta":{"progre\u017f\u017fTo\u212aen":1}`, `"ref":{"uri":"x","ur\u0049":"y"}`,
	} {
		if m, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{` + params +
			`}}`)); err == nil || m.ID() != "1" {
			t.Errorf("%s: %v, id %q", params, err, m.ID())
		}
	}
}

// swapCase returns a key in another case.
func swapCase(key string) string {
	if upper := strings.ToUpper(key); upper != key {
		return upper
	}
	return strings.ToLower(key)
}

// routed returns a message with one member replaced by the result of change.
func routed(id, path string, change func(key, value string) string) string {
	write := func(at, key, value string) string {
		if at == path {
			return change(key, value)
		}
		return fmt.Sprintf("%q:%s", key, value)
	}
	const related = "io.modelcontextprotocol/related-task"
	task := write("params._meta."+related+".taskId", "taskId", `"t"`)
	meta := write("params._meta.progressToken", "progressToken", "1") + "," +
		write("params._meta."+related, related, "{"+task+"}")
	ref := write("params.ref.type", "type", `"ref/prompt"`) + "," +
		write("params.ref.name", "name", `"p"`) + "," + write("params.ref.uri", "uri", `"u"`)
	params := write("params._meta", "_meta", "{"+meta+"}") + "," +
		write("params.ref", "ref", "{"+ref+"}")
	for _, key := range []string{"name", "uri", "taskId", "level", "cursor", "requestId",
		"progressToken", "elicitationId", "requestState"} {
		params += "," + write("params."+key, key, `"x"`)
	}
	for _, key := range []string{"arguments", "task", "inputResponses"} {
		params += "," + write("params."+key, key, "{}")
	}
	if id != "" {
		id = write("id", "id", "1") + ","
	}
	return "{" + write("jsonrpc", "jsonrpc", `"2.0"`) + "," + id +
		write("method", "method", `"m"`) + "," + write("params", "params", "{"+params+"}") + "}"
}
