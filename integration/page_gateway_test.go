//go:build unix

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// markupText is what a hostile server writes: it would run a script if it became markup, and
// reverses the direction of the text that follows it.
const markupText = `<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>` + "\u202e"

// hostileBackend returns a backend whose texts are hostile and whose descriptions are long. While
// the file down exists, it cannot start.
func hostileBackend(t *testing.T, name string) (b backend, down string) {
	t.Helper()
	down = filepath.Join(t.TempDir(), "down")
	script := `X="` + markupText + `"
	[ -e "$DOWN" ] && { echo "cannot start: $X" >&2; exit 3; }
	echo "$X $(printf '%010000d' 0)" >&2
	while read -r line; do
		id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
		case $line in
		*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"'"$X"'","version":"1"}}}' ;;
		*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[{"name":"evil","description":"'"$X"' '$(printf '%010000d' 0)'","inputSchema":{"type":"object"}},{"name":"'"$X"'","inputSchema":5}]}}' ;;
		*'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32000,"message":"'"$X"'"}}' ;;
		*'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
		esac
	done`
	file := filepath.Join(t.TempDir(), "server.sh")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return backend{Name: name, Command: "/bin/sh", Args: []string{file},
		Env: map[string]string{"DOWN": down}}, down
}

// row is the JavaScript of the text of a row.
func row(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].find(
		(r) => r.querySelector("th")?.innerText.startsWith(%q))?.innerText`, name)
}

// The page shows what happens as it happens: a call that runs and ends, a backend that dies and
// returns; and its buttons act.
func TestPage_ShowsWhatHappens(t *testing.T) {
	t.Parallel()
	tab := openBrowser(t)
	slow, respond := slowBackend(t, "slow")
	hostile, down := hostileBackend(t, "hostile")
	p := servePage(t, slow, hostile)
	listTools(t, p.gw)
	tab.logIn(p)
	tab.await(row("slow") + `.includes("ready")`)

	tab.show("calls")
	p.gw.sendRequest("7", "tools/call", `{"name":"slow"}`)
	tab.await(row("slow") + `.includes("running")`)
	respond()
	p.gw.awaitResponse("7", waitTimeout)
	tab.await(row("slow") + `.includes("ok")`)
	p.gw.sendRequest("8", "tools/call", `{"name":"evil"}`)
	tab.await(row("evil") + `.includes("rpc error")`)

	// filters: of the gateway, and of the page
	tab.set("select", "slow", "change")
	tab.await("!" + row("evil") + " && " + row("slow"))
	tab.do(chromedp.SendKeys("input[type=search]", "no such call"))
	tab.awaitText("No calls yet that match")
	tab.set("input[type=search]", "", "input")
	tab.await(row("slow"))

	// pause: a further call is counted and not shown
	tab.do(chromedp.Click(`button[aria-pressed]`))
	p.gw.sendRequest("9", "tools/call", `{"name":"slow"}`)
	p.gw.awaitResponse("9", waitTimeout)
	tab.await(`/Paused; [12] events/.test(document.body.innerText)`)
	tab.await(`document.querySelectorAll("tbody tr").length === 1`)
	tab.do(chromedp.Click(`button[aria-pressed]`))
	tab.await(`document.querySelectorAll("tbody tr").length === 2`)

	// one call: ids, timing
	tab.do(chromedp.Click("tbody button.link"))
	records := p.records()
	tab.awaitText("Id of the client", "ran ", records[len(records)-1].Call)
	tab.key(kb.Escape)
	tab.await(`!document.querySelector("dialog").open`)

	// a backend dies, and returns after its button was pressed
	tab.show("backends")
	if err := os.WriteFile(down, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tab.do(chromedp.Click(`button[aria-label="Stop hostile"]`))
	tab.awaitText("Clients then lose its 1 tools")
	tab.do(chromedp.Click(`[data-action="confirm"]`))
	tab.await(row("hostile") + `.includes("stopped by user")`)
	tab.do(chromedp.Click(`button[aria-label="Start hostile"]`))
	tab.await(row("hostile") + `.includes("▲")`)
	tab.await(`document.title.startsWith("(1)")`)
	if err := os.Remove(down); err != nil {
		t.Fatal(err)
	}
	tab.do(chromedp.Click(`button[aria-label="Restart hostile"]`))
	tab.await(row("hostile") + `.includes("● ready")`)
	tab.await(`document.title === "MCP gateway"`)

	// the gateway ends
	p.gw.cmd.Process.Signal(syscall.SIGTERM)
	tab.awaitText("connection lost; last seen")
}

// Text of a hostile server is text in all views, and makes none wider than the window.
func TestPage_HostileText(t *testing.T) {
	t.Parallel()
	tab := openBrowser(t)
	hostile, _ := hostileBackend(t, "hostile")
	p := servePage(t, hostile)
	listTools(t, p.gw)
	p.gw.sendRequest("7", "tools/call", `{"name":"evil"}`)
	p.gw.awaitResponse("7", waitTimeout)
	tab.logIn(p)
	for _, width := range []int64{400, 1600} {
		tab.do(chromedp.EmulateViewport(width, 800))
		for view, text := range map[string]string{
			"backends": "hostile", "calls": "evil", "sessions": "stdio",
			"catalog": "<script>window", "plots": "calls", "logs": "<script>window",
			"configuration": "admin.listen",
		} {
			tab.show(view)
			tab.awaitText(text)
			tab.await(`document.documentElement.scrollWidth <= innerWidth`)
			tab.await(`window.hacked === undefined && !document.querySelector("main script, main img")`)
			tab.await(`!document.body.innerText.includes("\u202e")`)
		}
	}
	tab.show("backends")
	tab.do(chromedp.Click("tbody button.link"))
	tab.awaitText("<script>window.hacked=1</script>")
}

// A wrong token is refused; the right one works; log out ends the login.
func TestPage_Login(t *testing.T) {
	t.Parallel()
	tab := openBrowser(t)
	p := servePage(t, backend{Name: "demo", Embedded: "demo"})
	tab.do(chromedp.Navigate(p.url+"/"), chromedp.WaitVisible("#token"),
		chromedp.SendKeys("#token", "wrong\r"))
	tab.awaitText("this is not the admin token")
	tab.await(`document.getElementById("page").hidden`)
	tab.logIn(p)
	tab.await(`document.cookie === ""`) // the page itself cannot read the login
	tab.do(chromedp.Reload(), chromedp.WaitVisible("#page"))
	tab.awaitText("connected")
	tab.do(chromedp.Click("#logout"), chromedp.WaitVisible("#token"))
	tab.do(chromedp.Reload(), chromedp.WaitVisible("#token"))
}

// gateway page opens the page logged in. Neither the token nor the code is in what it starts.
func TestPage_Command(t *testing.T) {
	t.Parallel()
	tab := openBrowser(t)
	p := servePage(t, backend{Name: "demo", Embedded: "demo"})
	opened := filepath.Join(p.dir, "opened")
	browser := filepath.Join(t.TempDir(), "browser")
	if err := os.WriteFile(browser, []byte("#!/bin/sh\necho \"$@\" >"+opened+".tmp\nmv "+opened+
		".tmp "+opened+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := p.command("page")
	cmd.Env = append(cmd.Env, "BROWSER="+browser)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "opened "+p.url+"/ in a browser") {
		t.Fatalf("%v %s", err, out)
	}
	var address string
	if !poll(waitTimeout, func() bool {
		text, err := os.ReadFile(opened)
		address = strings.TrimSpace(string(text))
		return err == nil
	}) {
		t.Fatal("no browser is opened")
	}
	file := strings.TrimPrefix(address, "file://")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 || strings.Contains(address, "?") {
		t.Fatalf("%s: %v %v", address, info, err)
	}
	form, _ := os.ReadFile(file)
	if strings.Contains(string(form), p.token) {
		t.Error("the file contains the token")
	}
	tab.do(chromedp.Navigate(address), chromedp.WaitVisible("#page"))
	tab.awaitText("connected")
	tab.do(chromedp.Click("#logout"), chromedp.WaitVisible("#token"))
	tab.do(chromedp.Navigate(address), chromedp.WaitVisible("#token")) // a code works once
	if out, err := p.command("page", "--print").CombinedOutput(); err != nil ||
		string(out) != p.url+"/\n" {
		t.Errorf("%v %s", err, out)
	}
	none := p.command("page")
	none.Env = append(none.Env, "BROWSER=/nowhere")
	if out, err := none.CombinedOutput(); err != nil || !strings.Contains(string(out), p.url) {
		t.Errorf("%v %s", err, out)
	}
}

// Everything can be reached with the keyboard, and has a name and a role.
func TestPage_KeyboardAndNames(t *testing.T) {
	t.Parallel()
	tab := openBrowser(t)
	p := servePage(t, backend{Name: "demo", Embedded: "demo"})
	tab.do(chromedp.Navigate(p.url+"/"), chromedp.WaitVisible("#token"))
	tab.key(p.token + kb.Enter) // the field has the focus
	tab.awaitText("connected", "demo")
	press := func(name string) { // moves to an element with this name, and presses Enter
		t.Helper()
		for range 40 {
			tab.key(kb.Tab)
			ok, err := chromedp.Run(tab.ctx, chromedp.Evaluate[bool](fmt.Sprintf(
				`(document.activeElement.ariaLabel ?? document.activeElement.innerText) === %q`, name)))
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				tab.await(`getComputedStyle(document.activeElement).outlineStyle !== "none"`)
				tab.key(kb.Enter)
				return
			}
		}
		t.Fatalf("the keyboard does not reach %s", name)
	}
	press("Restart demo")
	tab.awaitText("demo: ready")
	press("Stop demo")
	press("Stop it")
	tab.await(row("demo") + `.includes("stopped by user")`)
	press("Start demo")
	tab.await(row("demo") + `.includes("● ready")`)
	for _, view := range []string{"Calls", "Sessions", "Catalog", "Last 24 hours", "Logs",
		"Configuration"} {
		press(view)
		tab.await(fmt.Sprintf(`document.querySelector("h1").innerText === "MCP gateway" ||
			document.querySelector("main h1").innerText === %q`, view))
		// each control has a name, each table a caption and headers
		tab.await(`[...document.querySelectorAll("#page button, #page input, #page select")].every(
			(e) => e.ariaLabel || e.innerText || e.labels?.length)`)
		tab.await(`[...document.querySelectorAll("#page table:not(.u-legend)")].every(
			(e) => e.caption && e.querySelector("th[scope=col]"))`)
	}
	tab.await(`document.querySelector("header") && document.querySelector("nav[aria-label]") &&
		document.querySelector("main") && document.documentElement.lang === "en"`)
}

// The page shows the latest 300 calls only.
func TestPage_RowsAreBounded(t *testing.T) {
	t.Parallel()
	tab := openBrowser(t)
	p := servePage(t, backend{Name: "demo", Embedded: "demo"})
	tab.logIn(p)
	tab.show("calls")
	for i := range 330 {
		callTool(p.gw, "echo", fmt.Sprintf(`{"text":"%d"}`, i))
	}
	tab.await(`/ 3[0-9]{2} calls/.test(document.getElementById("gateway").innerText)`)
	tab.await(`document.querySelectorAll("tbody tr").length === 300`)
}
