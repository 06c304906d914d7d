//go:build unix

package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	mcpgoclient "github.com/mark3labs/mcp-go/client"
	mcpgotransport "github.com/mark3labs/mcp-go/client/transport"
	mcpgo "github.com/mark3labs/mcp-go/mcp"
	gosdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A confirmResult is what a client has seen of one call: the messages of the elicitations, and the
// result.
type confirmResult struct {
	Asked  []string `json:"asked"`
	Result struct {
		IsError bool                    `json:"isError"`
		Content []struct{ Text string } `json:"content"`
	} `json:"result"`
}

// setResult sets the result to that of an SDK.
func (r *confirmResult) setResult(t testing.TB, result any) {
	text, err := json.Marshal(result)
	if err == nil {
		err = json.Unmarshal(text, &r.Result)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A confirmUser answers elicitations: the question of the gateway with yes or no, and all others.
type confirmUser struct {
	yes   bool
	mu    sync.Mutex
	asked []string
}

func (u *confirmUser) answer(message string) map[string]any {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, message)
	if strings.HasPrefix(message, "The gateway requires") {
		return map[string]any{"confirm": u.yes}
	}
	return map[string]any{"n": 7}
}

// Elicit implements mcp-go's handler.
func (u *confirmUser) Elicit(
	_ context.Context, req mcpgo.ElicitationRequest,
) (*mcpgo.ElicitationResult, error) {
	return &mcpgo.ElicitationResult{ElicitationResponse: mcpgo.ElicitationResponse{
		Action: mcpgo.ElicitationResponseActionAccept, Content: u.answer(req.Params.Message)}}, nil
}

// A confirmClient calls a tool with {"n": 1} as a client of an SDK.
type confirmClient func(t testing.TB, revision, url, tool string, yes bool) confirmResult

func confirmWithGoSDK(t testing.TB, revision, url, tool string, yes bool) (r confirmResult) {
	user := &confirmUser{yes: yes}
	client := gosdk.NewClient(&gosdk.Implementation{Name: "gosdk", Version: "1.8"},
		&gosdk.ClientOptions{ElicitationHandler: func(
			_ context.Context, req *gosdk.ElicitRequest,
		) (*gosdk.ElicitResult, error) {
			content := user.answer(req.Params.Message)
			return &gosdk.ElicitResult{Action: "accept", Content: content}, nil
		}})
	session, err := client.Connect(t.Context(), &gosdk.StreamableClientTransport{Endpoint: url,
		HTTPClient: separateConnections()}, &gosdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	result, err := session.CallTool(t.Context(),
		&gosdk.CallToolParams{Name: tool, Arguments: map[string]any{"n": 1}})
	if err != nil {
		t.Fatal(err)
	}
	r.setResult(t, result)
	r.Asked = user.asked
	return r
}

func confirmWithMCPGo(t testing.TB, revision, url, tool string, yes bool) (r confirmResult) {
	user := &confirmUser{yes: yes}
	transport, err := mcpgotransport.NewStreamableHTTP(url,
		mcpgotransport.WithHTTPBasicClient(separateConnections()))
	if err != nil {
		t.Fatal(err)
	}
	client := mcpgoclient.NewClient(transport, mcpgoclient.WithProtocolVersion(revision),
		mcpgoclient.WithElicitationHandler(user))
	defer client.Close()
	if err := client.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	req := mcpgo.InitializeRequest{}
	req.Params.ClientInfo = mcpgo.Implementation{Name: "mcpgo", Version: "1.2"}
	req.Params.ProtocolVersion = revision
	if _, err := client.Initialize(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	call := mcpgo.CallToolRequest{}
	call.Params.Name, call.Params.Arguments = tool, map[string]any{"n": 1}
	result, err := client.CallTool(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	r.setResult(t, result)
	r.Asked = user.asked
	return r
}

// confirmWithNPM calls the tool as a client of the npm SDK, through testdata/confirm-client.mjs.
func confirmWithNPM(version string) confirmClient {
	return func(t testing.TB, revision, url, tool string, yes bool) (r confirmResult) {
		answer := "false"
		if yes {
			answer = "true"
		}
		cmd := exec.CommandContext(t.Context(), node(t), "testdata/confirm-client.mjs", version,
			revision, url, tool, answer)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		var complaints strings.Builder
		cmd.Stderr = &complaints
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &r)
		}
		if err != nil {
			t.Fatalf("confirm-client.mjs: %v\n%s\n%.4000s", err, out, complaints.String())
		}
		return r
	}
}

// The clients of the SDKs, of both generations, are asked to confirm calls at backends of both
// generations. Confirmed calls run, also if the backend asks during the call; declined calls do
// not.
func TestConfirm_SDKClients(t *testing.T) {
	t.Parallel()
	forEachGenerationPair(t, func(t *testing.T, revision, generation string) {
		clients := map[string]confirmClient{"go-sdk": confirmWithGoSDK, "mcp-go": confirmWithMCPGo,
			"npm v2": confirmWithNPM("v2")}
		if revision == legacyRevision {
			clients["npm v1"] = confirmWithNPM("v1")
		}
		b := fidelityBackend(generation)
		b.Tools = map[string]any{"confirm": []string{"*"}}
		s := newSetup(t, map[string]any{"catalog": map[string]any{"wait": "30s"}}, b)
		_, url := s.serveHTTP()
		calls := 0
		for name, call := range clients {
			for _, tool := range []string{"echo", "ask"} {
				r := call(t, revision, url, tool, true)
				question := "The gateway requires that you confirm this call before it runs:\n\n" +
					"    backend: fidelity\n    tool: \"" + tool + "\"\n    arguments: {\"n\":1}\n"
				want := []string{question}
				if tool == "ask" {
					want = append(want, "[fidelity] how many?")
				}
				if !slices.Equal(r.Asked, want) || r.Result.IsError || len(r.Result.Content) != 1 {
					t.Errorf("%s: %s confirmed: %+v", name, tool, r)
				}
				r = call(t, revision, url, tool, false)
				if !slices.Equal(r.Asked, []string{question}) || !r.Result.IsError ||
					len(r.Result.Content) != 1 || !strings.HasPrefix(r.Result.Content[0].Text,
					"The call did not run: the user has to confirm calls of "+tool) {
					t.Errorf("%s: %s declined: %+v", name, tool, r)
				}
				calls++
			}
		}
		var outcomes map[string]int
		if !poll(waitTimeout, func() bool {
			outcomes = confirmOutcomes(t, s)
			return outcomes["ok accepted"] == calls && outcomes["rejected declined"] == calls
		}) {
			t.Errorf("the audit file has %v for %d calls", outcomes, calls)
		}
	})
}

// confirmOutcomes counts the outcomes in the audit file, each with the state of the confirmation.
func confirmOutcomes(t testing.TB, s *setup) map[string]int {
	outcomes := make(map[string]int)
	for _, r := range s.records() {
		var confirmation struct{ Confirmation string }
		if err := json.Unmarshal([]byte(r.line), &confirmation); err != nil {
			t.Fatal(err)
		}
		outcomes[r.Outcome+" "+confirmation.Confirmation]++
	}
	return outcomes
}

// A call of the command call cannot be confirmed, and says so.
func TestConfirm_CommandCall(t *testing.T) {
	t.Parallel()
	b := fidelityBackend(legacyRevision)
	b.Tools = map[string]any{"confirm": []string{"echo", "nothing*"}}
	s := newSetup(t, nil, b)
	code, stderr := s.runToExit("call", "echo")
	if code != 1 || !strings.Contains(stderr, "The call did not run: the user has to confirm calls "+
		"of echo at backend fidelity (tools.confirm), and this client cannot be asked") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
