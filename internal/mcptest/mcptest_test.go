package mcptest

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"mcpgateway/internal/transport"
	"mcpgateway/internal/wire"
)

func TestScriptRoundTrip(t *testing.T) {
	const text = `# prose

hello 2025-06-18
→ {"a":  1}
←  { "b":2 }
wait 1.5s
→
end
`
	script, err := parseScript(text, toBackend, toClient, wait, handshake, clientEnd)
	if err != nil {
		t.Fatal(err)
	}
	if got := formatScript(script); got != text {
		t.Errorf("got %s\nwant %s", got, text)
	}
}

func TestInvalidScript(t *testing.T) {
	for _, text := range []string{"-> {}", "→{}", "wait", "wait long", "exit 1", " → {}", "End"} {
		if _, err := parseScript(text+"\n", toBackend, toClient, wait, clientEnd); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// The Conn returns the lines that the Peer sends, in order, whether they are valid or not.
func TestPeerSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, p := NewPeer(t, "peer")
		p.Send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		p.Send("noise")
		p.Send(`{"jsonrpc":"1.0","id":7,"method":"m"}`)
		p.FailRead(&transport.CallLostError{ID: "3", Err: errors.New("503")})
		p.Send(`{"jsonrpc":"2.0","method":"n"}`)
		p.CloseSend()
		p.Send(`{"jsonrpc":"2.0","method":"beyond the end"}`)
		var got []string
		for range 7 {
			m, _, err := conn.Read()
			noise, _ := errors.AsType[*transport.MalformedError](err)
			switch {
			case noise != nil:
				got = append(got, "noise "+string(noise.ID))
			case err != nil:
				got = append(got, err.Error())
			default:
				got = append(got, m.Method())
			}
		}
		if want := "m, noise , noise 7, 503, n, EOF, EOF"; strings.Join(got, ", ") != want {
			t.Errorf("read %q, want %s", got, want)
		}
		if err := conn.Write(wire.NewNotification("answer", nil), ""); err != nil {
			t.Error(err) // only the Peer's sending side is closed
		}
		p.Want(`{"jsonrpc":"2.0","method":"answer"}`)
		p.WantNothing()
		if p.Disconnected() {
			t.Error("disconnected before Close")
		}
		conn.Close()
		synctest.Wait()
		if !p.Disconnected() {
			t.Error("still connected after Close")
		}
		if _, _, err := conn.Read(); !errors.Is(err, io.EOF) {
			t.Errorf("Read: %v", err)
		}
	})
}
