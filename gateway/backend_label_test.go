package gateway_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/protocol"
	"mcpgateway/internal/wire"
)

// A text to which the backend's name cannot be added is sent to no client.
func TestTextsWithoutBackendLabel_F_SEC_5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-11-25", `{"elicitation":{"form":{},"url":{}}}`)
		gh := h.nextProcess("gh")
		gh.ServeStartup("a")
		listTools(t, client)
		client.Send(toolsCall("1", "a"))
		asked := gh.WantRequest("tools/call")
		for member, params := range map[string]string{
			`"message" occurs twice`:   `"message":"x","message":"y"`,
			`"Message"`:                `"Message":"x"`,
			`"me\u017fsage"`:           `"message":"x","me\u017fsage":"y"`,
			`"message" in params`:      `"message":7`,
			`"message" in params must`: `"message":null`,
			`"message" is missing`:     `"mode":"form"`,
			`"mode" occurs twice`:      `"message":"x","mode":"form","mode":"url"`,
			`"MODE"`:                   `"message":"x","MODE":"url"`,
			`"URL"`:                    `"message":"x","mode":"url","url":"a:b","URL":"c:d"`,
		} {
			gh.Send(`{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{` + params +
				`}}`)
			e := wire.ReadError(gh.NextMessage().Part(wire.PartError))
			if member = strings.ReplaceAll(member, `\u017f`, "ſ"); e.Code != -32602 ||
				!strings.Contains(e.Message, member) {
				t.Errorf("%s: %+v", params, e)
			}
			result := `{"inputRequests":{"a":{"method":"elicitation/create","params":{` + params +
				`}}}}`
			if _, _, err := protocol.ReadInputRequests([]byte(result)); err == nil {
				t.Errorf("read %s", result)
			}
		}
		for _, logger := range []string{`"logger":"x","logger":"y"`, `"Logger":"x"`, `"logger":7`} {
			gh.Send(
				`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1,` + logger + `}}`)
		}
		for _, params := range []string{``, `,"params":null`, `,"params":{}`} {
			gh.Send(`{"jsonrpc":"2.0","id":6,"method":"elicitation/create"` + params + `}`)
			if e := wire.ReadError(gh.NextMessage().Part(wire.PartError)); e.Code != -32602 ||
				!strings.Contains(e.Message, `"message" is missing`) {
				t.Errorf("%q: %+v", params, e)
			}
		}
		gh.WantNothing()
		client.WantNothing()
		if lines := h.log.Lines("level=WARN", "backend=gh", "invalid params"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
		gh.SendResult(asked.ID(), "{}")
		client.Want(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}
