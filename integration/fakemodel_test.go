//go:build unix

package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A fakeModel replaces the Anthropic Messages API on loopback, as far as Claude Code uses it.
// For each prompt line `CALL <tool> <json>` it requests that tool, in order, and then returns
// the text of the last result. It records the requests that it received.
type fakeModel struct {
	url string

	mu       sync.Mutex
	offered  []string          // tool names of the request with most tools
	results  []toolResult      // in order of arrival
	seen     map[string]bool   // tool_use ids in results
	requests []json.RawMessage // bodies of POST …/messages
}

// A toolResult is a tool's result as the client reports it.
type toolResult struct {
	tool    string
	text    string
	isError bool
}

// A modelRequest has the members of a Messages request that the fake needs.
type modelRequest struct {
	Model    string
	Stream   bool
	Tools    []struct{ Name string }
	Messages []struct {
		Role    string
		Content modelContent
	}
}

// A modelContent is a string or a list of blocks.
type modelContent []modelBlock

type modelBlock struct {
	Type, Text, ID, Name string
	ToolUseID            string       `json:"tool_use_id"`
	Content              modelContent // of a tool_result
	IsError              bool         `json:"is_error"`
}

func (c *modelContent) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		*c = modelContent{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(b, (*[]modelBlock)(c))
}

func (c modelContent) text() string {
	var parts []string
	for _, b := range c {
		if b.Type == "text" {
			parts = append(parts, b.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// startModel serves until the test ends.
func startModel(t testing.TB) *fakeModel {
	m := &fakeModel{seen: map[string]bool{}}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL
	return m
}

func (m *fakeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/messages/count_tokens"):
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"input_tokens":1}`)
		return
	case r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/messages"):
		http.NotFound(w, r)
		return
	}
	var raw json.RawMessage
	var req modelRequest
	if err := json.NewDecoder(r.Body).Decode(&raw); err == nil {
		if err = json.Unmarshal(raw, &req); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	block, reason := m.next(raw, req)
	reply(w, req, block, reason)
}

// next returns the one block of the model's message: a tool_use or a text.
func (m *fakeModel) next(
	raw json.RawMessage, req modelRequest,
) (block map[string]any, stopReason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests = append(m.requests, raw)
	if len(req.Tools) > len(m.offered) {
		m.offered = nil
		for _, tool := range req.Tools {
			m.offered = append(m.offered, tool.Name)
		}
	}

	var calls [][2]string
	used := map[string]string{} // id → tool
	lastResult := "nothing to do"
	for _, msg := range req.Messages {
		for _, b := range msg.Content {
			switch {
			case b.Type == "tool_use":
				used[b.ID] = b.Name
			case b.Type == "tool_result":
				lastResult = b.Content.text()
				if !m.seen[b.ToolUseID] {
					m.seen[b.ToolUseID] = true
					m.results = append(m.results,
						toolResult{used[b.ToolUseID], lastResult, b.IsError})
				}
			case b.Type == "text" && msg.Role == "user":
				for line := range strings.Lines(b.Text) {
					if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "CALL "); ok {
						tool, input, _ := strings.Cut(rest, " ")
						calls = append(calls, [2]string{tool, input})
					}
				}
			}
		}
	}
	// Requests without tools are Claude Code's own, for titles and summaries.
	if n := len(used); n < len(calls) && len(req.Tools) > 0 {
		return map[string]any{
			"type": "tool_use", "id": fmt.Sprintf("toolu_fake_%d", n), "name": calls[n][0],
			"input": json.RawMessage(calls[n][1]),
		}, "tool_use"
	}
	return map[string]any{"type": "text", "text": lastResult}, "end_turn"
}

// reply sends one message with one block, as events if the request is for a stream.
func reply(w http.ResponseWriter, req modelRequest, block map[string]any, stopReason string) {
	usage := map[string]any{"input_tokens": 1, "output_tokens": 1}
	message := map[string]any{
		"id": "msg_fake", "type": "message", "role": "assistant", "model": req.Model,
		"usage":   usage,
		"content": []any{block}, "stop_reason": stopReason, "stop_sequence": nil,
	}
	if !req.Stream {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(message)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(kind string, data map[string]any) {
		data["type"] = kind
		b, _ := json.Marshal(data)
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, b)
	}
	// In a stream a block starts empty and is filled by deltas.
	start := map[string]any{"type": "text", "text": ""}
	delta := map[string]any{"type": "text_delta", "text": block["text"]}
	if block["type"] == "tool_use" {
		start = map[string]any{"type": "tool_use", "id": block["id"], "name": block["name"],
			"input": map[string]any{}}
		delta = map[string]any{"type": "input_json_delta",
			"partial_json": string(block["input"].(json.RawMessage))}
	}
	message["content"], message["stop_reason"] = []any{}, nil
	event("message_start", map[string]any{"message": message})
	event("content_block_start", map[string]any{"index": 0, "content_block": start})
	event("content_block_delta", map[string]any{"index": 0, "delta": delta})
	event("content_block_stop", map[string]any{"index": 0})
	event("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stopReason,
		"stop_sequence": nil}, "usage": usage})
	event("message_stop", map[string]any{})
}

// record returns the tools that were offered to the model and the results that it received.
func (m *fakeModel) record() (offered []string, results []toolResult) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.offered), slices.Clone(m.results)
}
