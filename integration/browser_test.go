//go:build unix

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A browserTab is a tab of a real Chromium. What the page writes to the console, and what the
// Content-Security-Policy refuses, fails the test.
type browserTab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// openBrowser starts Chromium. Without TEST_CHROMIUM the test is skipped if there is none.
func openBrowser(t *testing.T) *browserTab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("TEST_CHROMIUM") != "" {
			t.Fatal(err)
		}
		t.Skip("needs the package chromium; TEST_CHROMIUM=1 makes this an error")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.UserDataDir(t.TempDir()))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(closeTab)
	b := &browserTab{t: t, ctx: ctx}
	b.do(chromedp.Navigate("about:blank"))
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, log.Enable, cdp.Empty{})
		return err
	}))
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, p := range b.problems {
			t.Errorf("in the console: %s", p)
		}
	})
	return b
}

// note notes what is written to the console.
func (b *browserTab) note(event any) {
	var text string
	switch e := event.(type) {
	case *log.EventEntryAdded:
		text = e.Entry.Text + " " + e.Entry.URL
		if e.Entry.Level == "verbose" || strings.Contains(text, "401") &&
			strings.HasSuffix(text, "/login") { // a wrong token
			return
		}
		for _, ended := range []string{"ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET",
			"ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE"} {
			if strings.Contains(text, "net::"+ended) { // the gateway has ended
				return
			}
		}
	case *runtime.EventExceptionThrown:
		text = fmt.Sprintf("%+v %+v", e.ExceptionDetails, e.ExceptionDetails.Exception)
	case *runtime.EventConsoleAPICalled:
		text = fmt.Sprintf("%+v", e)
	default:
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, text)
}

func (b *browserTab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := b.ctx, func() {}
	if chromedp.FromContext(b.ctx).Browser != nil { // the first step starts the browser
		ctx, cancel = context.WithTimeout(b.ctx, waitTimeout)
	}
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// text returns the visible text of the page.
func (b *browserTab) text() string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](
		`document.body.innerText + "\n" + document.title`))
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// await waits until a JavaScript condition is true.
func (b *browserTab) await(condition string) {
	b.t.Helper()
	last := ""
	if !poll(waitTimeout, func() bool {
		ok, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
		if err != nil {
			last = err.Error()
		}
		return ok
	}) {
		b.t.Fatalf("never: %s %s\n%s", condition, last, b.text())
	}
}

// awaitText waits until the page contains texts.
func (b *browserTab) awaitText(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		b.await(fmt.Sprintf("document.body.innerText.includes(%q)", text))
	}
}

// set gives an input or select a value, and sends the event of a user's change.
func (b *browserTab) set(selector, value, event string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{
		const e = document.querySelector(%q);
		e.value = %q;
		e.dispatchEvent(new Event(%q));
	}`, selector, value, event)))
}

// key presses a key, or types a text.
func (b *browserTab) key(keys string) { b.t.Helper(); b.do(chromedp.KeyEvent(keys)) }

// A servedPage is a gateway with a page.
type servedPage struct {
	*setup
	gw         *rawClient
	url, token string
}

// servePage starts a gateway with a page, and a client named client.
func servePage(t *testing.T, backends ...backend) *servedPage {
	t.Helper()
	s := newSetup(t, map[string]any{
		"admin": map[string]any{"listen": "127.0.0.1:0"},
	}, backends...)
	p := &servedPage{setup: s, gw: s.start()}
	p.gw.initialize("2025-11-25")
	all := s.awaitStatus("the address of the page",
		func(all []statusReport) bool { return len(all) == 1 && all[0].Gateway.Admin != "" })
	p.url = all[0].Gateway.Admin
	token, err := os.ReadFile(filepath.Join(s.dir, "state", "admin-token"))
	if err != nil {
		t.Fatal(err)
	}
	p.token = strings.TrimSpace(string(token))
	return p
}

// logIn logs in with the token.
func (b *browserTab) logIn(p *servedPage) {
	b.t.Helper()
	b.do(chromedp.Navigate(p.url+"/"), chromedp.WaitVisible("#token"),
		chromedp.SendKeys("#token", p.token+"\r"), chromedp.WaitVisible("#page"))
	b.awaitText("connected")
}

// show shows a view.
func (b *browserTab) show(view string) {
	b.t.Helper()
	b.do(chromedp.Click(`a[href="#` + view + `"]`))
	b.await(`document.querySelector('[aria-current="page"]').hash === "#` + view + `"`)
}
