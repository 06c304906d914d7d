package mrtr

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"mcpgateway/internal/wire"
)

func TestLabelInputs(t *testing.T) {
	m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{ "x":1.0, "inputRequests" : {` +
		`"a": { "method" : "elicitation/create", "params" : { "message" : "m\u0061" } } , ` +
		`"b":{"method":"sampling/createMessage","params":{"message":"no"}},` +
		`"c":{"params":{"x":{"message":"no"},"message":""},"method":"elicitation/create"},` +
		`"d":{"method":"elicitation/create","params":{"message":1.0}}}, "requestState":"s" }}`))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"jsonrpc":"2.0","id":1,"result":{ "x":1.0, "inputRequests" : {` +
		`"a": { "method" : "elicitation/create", "params" : { "message" : "[gh] m\u0061" } } , ` +
		`"b":{"method":"sampling/createMessage","params":{"message":"no"}},` +
		`"c":{"params":{"x":{"message":"no"},"message":"[gh] "},"method":"elicitation/create"},` +
		`"d":{"method":"elicitation/create","params":{"message":1.0}}}, "requestState":"s" }}`
	if got := LabelInputs("gh", m); string(got.Raw()) != want {
		t.Errorf("got %s\nwant %s", got.Raw(), want)
	}
}

// The message is copied once, not once for each elicitation.
func TestLabelInputs_CopiesMessageOnce(t *testing.T) {
	var inputs []string
	for i := range MaxInputRequests {
		inputs = append(inputs, fmt.Sprintf(
			`"k%d":{"method":"elicitation/create","params":{"message":"m"}}`, i))
	}
	m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{` +
		strings.Join(inputs, ",") + `},"requestState":"` + strings.Repeat("x", 1<<20) + `"}}`))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	labelled := LabelInputs("gh", m)
	runtime.ReadMemStats(&after)
	if n := strings.Count(string(labelled.Raw()), "[gh] m"); n != MaxInputRequests {
		t.Errorf("%d elicitations have the label", n)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 4<<20 {
		t.Errorf("labelling a message of 1 MiB allocates %d bytes", n)
	}
}
