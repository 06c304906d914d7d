package protocol

import (
	"testing"

	"mcpgateway/internal/wire"
)

// Each elicitation gets the label, also if an earlier one contains a copy of it. The copy got the
// label instead, so a backend could send an elicitation that named another sender.
func TestLabelElicitations_CopyInEarlierElicitation(t *testing.T) {
	const (
		one  = `{"mode":"url","message":"m"}`
		list = `[{"mode":"url","message":"m","x":` + one + `} , ` + one + `]`
		want = `[{"mode":"url","message":"[b] m","x":` + one + `} , {"mode":"url","message":"[b] m"}]`
		head = `{"code":-32042,"message":"go","data":{"elicitations":`
	)
	got, err := LabelElicitations([]byte(head+list+`}}`), "[b] ")
	if err != nil || string(got) != head+want+`}}` {
		t.Errorf("%v\n got %s\nwant %s", err, got, head+want+`}}`)
	}
	if _, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"error":` + string(got) + `}`)); err != nil {
		t.Error(err)
	}
}
