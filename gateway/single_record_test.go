package gateway_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/gateway"
	"mcpgateway/internal/wire"
)

// beginCounter counts the beginnings of each call, by session and id. It supports one call at a
// time.
type beginCounter map[string]int

func (o beginCounter) Begin(c *gateway.CallInfo)            { o[c.Session+"/"+string(c.ID)]++ }
func (beginCounter) Routed(*gateway.CallInfo)               {}
func (beginCounter) End(*gateway.CallInfo, gateway.Outcome) {}

// Backend responses, crashes and restarts, cancellations, disconnects and timeouts are concurrent.
// Each call gets one response, or none if it was cancelled, and one record.
func TestOBS_03_OneEndAndOneRecordPerCall(t *testing.T) {
	outcomes := make(map[string]int)
	for round := range 40 {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, settings{callTimeout: map[string]time.Duration{"gh": time.Second},
				grace: time.Second}, "gh")
			client, served := h.connectClient()
			client.Initialize("2025-06-18")
			gh := h.nextProcess("gh")
			gh.ServeStartup("slow")
			listTools(t, client)
			const n = 24
			for i := range n {
				client.Sendf(
					`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow","_meta":{"progressToken":%d}}}`, i, i)
			}
			ids := make([]wire.ID, n)
			for i := range n {
				ids[i] = gh.WantRequest("tools/call").ID()
			}
			go func() {
				time.Sleep(time.Second)
				for i := range n {
					k := (i*5 + round) % n
					gh.Sendf(
						`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s}}`, ids[k])
					switch {
					case k%4 == 0:
						gh.SendResult(ids[k], `{"isError":true}`)
					case k%4 == 1:
						gh.SendError(ids[k], `{"code":1,"message":""}`)
					case k == round%n && round%2 == 0:
						gh.Exit("exit 1", "")
					default:
						gh.SendResult(ids[k], "{}")
					}
				}
			}()
			go func() {
				time.Sleep(time.Second)
				for i := range n {
					if k := (i*7 + round) % n; k%3 != 0 {
						client.Sendf(
							`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, k)
					}
				}
				if round%3 == 0 {
					client.Close()
				}
			}()
			time.Sleep(1500 * time.Millisecond)
			answers := make(map[wire.ID]int)
			for _, line := range client.TakeAll() {
				m, err := wire.Parse([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				if m.Kind() == wire.Response {
					answers[m.ID()]++
				}
			}
			client.CloseSend()
			<-served
			records := h.auditRecords()
			if len(records) != n {
				t.Fatalf("round %d: %d records, want %d", round, len(records), n)
			}
			for i := range n {
				id := fmt.Sprint(i)
				at := slices.IndexFunc(records,
					func(r string) bool { return strings.Contains(r, " id="+id+" ") })
				if at < 0 {
					t.Fatalf("round %d: no record of call %s", round, id)
				}
				_, outcome, _ := strings.Cut(records[at], "outcome=")
				outcome, _, _ = strings.Cut(outcome, " ")
				outcomes[outcome]++
				switch got := answers[wire.ID(id)]; {
				case outcome == "cancelled" && got != 0, got > 1, outcome != "cancelled" &&
					got == 0 && round%3 != 0:
					t.Errorf("round %d: call %s was answered %d times and recorded as %s", round,
						id, got, outcome)
				}
			}
		})
	}
	t.Log(outcomes)
	for _, want := range []string{"ok", "tool_error", "rpc_error", "cancelled", "timeout",
		"backend_lost"} {
		if outcomes[want] == 0 {
			t.Errorf("no call ended with %s: %v", want, slices.Collect(maps.Keys(outcomes)))
		}
	}
}

// OBS-05: a thousand concurrent calls cause a thousand records, each with all ids of its call.
func TestOBS_05_RecordHasAllIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, settings{}, "gh")
		client, _ := h.connectClient()
		client.Initialize("2025-06-18")
		gh := h.nextProcess("gh")
		gh.ServeStartup("search")
		listTools(t, client)
		const n = 1000
		for i := range n {
			client.Sendf(
				`{"jsonrpc":"2.0","id":"c%d","method":"tools/call","params":{"name":"search"}}`, i)
		}
		for range n {
			gh.SendResult(gh.WantRequest("tools/call").ID(), "{}")
		}
		for range n {
			client.Next()
		}
		seen := make(map[string]bool)
		for _, r := range h.auditRecords() {
			var id, backend int
			if _, err := fmt.Sscanf(r,
				`level=INFO msg=call session=S client=tester/1 id="\"c%d\"" backend_id=%d tool=search backend=gh backend_tool=search outcome=ok bytes_in=0 bytes_out=2`, &id, &backend); err != nil {
				t.Fatalf("%s: %v", r, err)
			}
			seen[fmt.Sprint(id, backend)] = true
		}
		if len(seen) != n {
			t.Errorf("%d records, want %d", len(seen), n)
		}
	})
}

// A backend crashes and restarts at random times during calls. Each call gets one response: the
// result of the restarted backend, or an error that says that the call may have run.
func TestCallsDuringRestarts(t *testing.T) {
	for round := range 30 {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, settings{}, "gh")
			client, _ := h.connectClient()
			client.Initialize("2025-06-18")
			gh := h.nextProcess("gh")
			gh.ServeStartup("slow")
			listTools(t, client)
			const n = 10
			for i := range n {
				go func() {
					time.Sleep(time.Second)
					client.Sendf(
						`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow"}}`,
						i)
				}()
			}
			time.Sleep(time.Second)
			for range round % 8 {
				gh.Send(`{"jsonrpc":"2.0","method":"x"}`) // varies the time of the exit
			}
			gh.Exit("exit 1", "")
			reached := len(gh.TakeAll())
			again := h.nextProcess("gh")
			again.ServeHandshake("")
			waited := 0
			for _, line := range again.TakeAll() {
				if m, _ := wire.Parse([]byte(line)); m.Method() == "tools/call" {
					waited++
					again.SendResult(m.ID(), "{}")
				}
			}
			ok, lost := 0, 0
			for _, line := range client.TakeAll() {
				switch {
				case strings.Contains(line, `"result":{}`):
					ok++
				case strings.Contains(line, "exit 1; outcome unknown"):
					lost++
				default:
					t.Errorf("got %s", line)
				}
			}
			// The response to a call that is sent while the process exits may say that the call
			// may have run although it did not run. It must never say that a call that has run did
			// not run.
			if ok != waited || lost < reached || ok+lost != n {
				t.Errorf(
					"%d of %d calls were answered, %d were lost; %d reached the first process, %d waited", ok, n, lost, reached, waited)
			}
		})
	}
}
