package wire

import (
	"strings"
	"testing"
)

func TestRepair_F_HTTP_11(t *testing.T) {
	deep := strings.Repeat("[", 998) + strings.Repeat("]", 998)
	tests := []struct{ name, text, want string }{
		{"good result", `{"jsonrpc":"2.0", "id":1, "result": {"a" : 1.50}}`, ""},
		{"good error", `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"","data":[1]}}`,
			""},
		{"request", `{"jsonrpc":"2.0","id":1,"method":"m","x":1}`, ""},
		{"result and null error", `{"jsonrpc":"2.0","id":1,"result":{"a":1},"error":null}`, ""},
		{"no code", `{"jsonrpc":"2.0","id":1,"error":{"message":"boom"}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"boom","data":{"message":"boom"}}}`},
		{"code is a string",
			`{"jsonrpc":"2.0","id":1,"error":{"code":"E7","message":"boom","data":{"a": 1}}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"boom","data":{"code":"E7","message":"boom","data":{"a": 1}}}}`},
		{"code has a fraction", `{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"boom"}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"boom","data":{"code":1.5,"message":"boom"}}}`},
		{"code is larger than an integer",
			`{"jsonrpc":"2.0","id":1,"error":{"code":9007199254740993,"message":"b"}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"b","data":{"code":9007199254740993,"message":"b"}}}`},
		{"no message", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"an error without a message: {\"code\":-32602}","data":{"code":-32602}}}`},
		{"message null",
			`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":null,"detail":"why"}}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"why","data":{"code":1,"message":null,"detail":"why"}}}`},
		{"error is a string", `{"jsonrpc":"2.0","id":1,"error":"boom"}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"boom","data":"boom"}}`},
		{"error is a string, result null", `{"id":1,"result":null,"error":"boom","jsonrpc":"2.0"}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"boom","data":"boom"}}`},
		{"error is null", `{"jsonrpc":"2.0","id":1,"error":null}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"an error without a message: null","data":null}}`},
		{"error is an array", `{"jsonrpc":"2.0","id":1,"error":["a"]}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"an error without a message: [\"a\"]","data":["a"]}}`},
		{"result is null", `{"jsonrpc":"2.0","id":1,"result":null}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the result is not an object: null","data":null}}`},
		{"result is a string", `{"jsonrpc":"2.0","id":1,"result":"done"}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the result is not an object: \"done\"","data":"done"}}`},
		{"result is an array", `{"jsonrpc":"2.0","id":1,"result":[1]}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the result is not an object: [1]","data":[1]}}`},
		{"both null", `{"jsonrpc":"2.0","id":1,"result":null,"error":null}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"the result is not an object: null","data":null}}`},
		{"maximum depth", `{"jsonrpc":"2.0","id":1,"error":` + deep + `}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"an error without a message: ` + strings.Repeat("[", 100) + `…"` +
				`,"data":` + deep + `}}`},
		{"deeper", `{"jsonrpc":"2.0","id":1,"error":[` + deep + `]}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"an error without a message: ` + strings.Repeat("[", 100) + `…"}}`},
		{"unknown members",
			`{"x":[1], "jsonrpc":"2.0","id":1,"y":{"result":1},"result": {"a" : 1.50},"durationMs":3}`,
			`{"jsonrpc":"2.0","id":1,"result": {"a" : 1.50}}`},
		{"unknown members and white space",
			` { "x" : 1 , "y" : 2 , "jsonrpc":"2.0" , "z":3 , "z2":3 ,"id":1 ,  "result" : {"a" : 1.50} , "w":4 } `,
			` { "jsonrpc":"2.0" ,"id":1 ,  "result" : {"a" : 1.50} } `},
		{"unknown member and error",
			`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","z":1},"stack":"s"}`,
			`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","z":1}}`},
		{"params of a response", `{"jsonrpc":"2.0","id":1,"result":{},"params":{}}`,
			`{"jsonrpc":"2.0","id":1,"result":{}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, err := Parse([]byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			was := string(m.Raw())
			repaired, repair := m.Repair()
			if tt.want == "" {
				tt.want = was
			}
			if got := string(repaired.Raw()); got != tt.want || (repair != "") != (got != was) {
				t.Errorf("got  %s (%s)\nwant %s", got, repair, tt.want)
			}
			if again, repair := repaired.Repair(); repair != "" {
				t.Errorf("the repaired message is repaired to %s", again.Raw())
			}
		})
	}
}

func TestSalvage_F_HTTP_11(t *testing.T) {
	for text, want := range map[string]string{
		`{"id":1,"error":{"message":"boom"}}`:                     `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"boom","data":{"message":"boom"}}}`,
		`{"id":1,"error":{"code":-32000,"message":"boom"}}`:       `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"boom"}}`,
		`{"jsonrpc":"1.0","id":1,"error":"boom","result":null}`:   `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"boom","data":"boom"}}`,
		`{"id":1,"result":{}}`:                                    "",
		`{"error":"boom"}`:                                        "",
		`{"jsonrpc":"2.0","id":1,"method":"m","error":"boom"}`:    "",
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1}}`: "",
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":` +
			strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}}`: "",
	} {
		m, err := Parse([]byte(text))
		if err == nil {
			t.Fatalf("%s is valid", text)
		}
		if got := string(m.Salvage().Raw()); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", text, got, want)
		}
	}
}

// A response that needs no repair causes no allocation.
func TestRepairAllocations_F_HTTP_11(t *testing.T) {
	m, err := Parse([]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() { m.Repair() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
