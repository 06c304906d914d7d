package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpgateway/internal/loginpage"
	"mcpgateway/internal/oauthclient"
)

// A loginWait is a login by the command line that is waiting for the browser.
type loginWait struct {
	*oneShot
	name    string // of the backend
	owner   string // see whoseLogin
	command string // that begins this login again
	auth    *oauthclient.Authorization
	login   *oauthclient.Login
	done    chan error // receives the outcome once
}

// logIn begins a login, shows its page, and waits until it is completed or has failed.
func (w *loginWait) logIn(ctx context.Context, noBrowser bool) error {
	listener, err := w.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	redirect := "http://" + listener.Addr().String() + loginpage.RedirectPath
	w.login, err = w.auth.BeginLogin(ctx, redirect)
	if err != nil {
		return fmt.Errorf("backend %s: %w", w.name, err)
	}
	w.done = make(chan error, 1)
	server := &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ending) != nil { // lets the browser show the outcome
			server.Close()
		}
		serving.Wait()
	}()

	issuer, waitsFor := escapeControls(w.login.Issuer), "the login in the browser"
	switch {
	case noBrowser:
		fmt.Fprintf(w.err, "Open this page to log in to %s%s at %s:\n\n%s\n\n"+
			"Then paste the address of the page that the browser cannot open (%s?...):\n",
			w.name, forWhom(w.owner), issuer, w.login.URL, redirect)
		waitsFor = "the address to be pasted"
		go w.readRedirects(ctx) // ends with the process if the user pastes nothing
	default:
		fmt.Fprintf(w.err, "Log in to %s%s at %s in the browser. If no browser opens, open:\n\n%s\n\n",
			w.name, forWhom(w.owner), issuer, w.login.URL)
		if err := loginpage.Open(w.login.URL); err != nil {
			fmt.Fprintf(w.err, "gateway: no browser was opened: %s; if your browser is on another "+
				"machine, stop with Ctrl-C and run %s --no-browser\n", err, w.command)
		}
	}
	return w.await(ctx, waitsFor)
}

// listen listens at the port of the redirect URI: the configured one, or the one with which the
// gateway is registered, or any.
func (w *loginWait) listen() (net.Listener, error) {
	port := w.Config.Backends[0].OAuth.RedirectPort
	if port != 0 {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return nil, hintedError{fmt.Errorf("redirect_port of backend %s: %w", w.name, err),
				"end the program that uses the port, or change oauth.redirect_port"}
		}
		return l, nil
	}
	if u, err := url.Parse(w.auth.RedirectURI()); err == nil && u.Hostname() == "127.0.0.1" {
		if l, err := net.Listen("tcp", u.Host); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp", "127.0.0.1:0")
}

// await waits for the outcome, and shows for what it waits.
func (w *loginWait) await(ctx context.Context, waitsFor string) error {
	p := progress{w: w.err, terminal: isTerminal(w.err), began: time.Now()}
	defer p.clear()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-w.done:
			if err != nil {
				err = hintedError{fmt.Errorf("backend %s: %w", w.name, err),
					"run " + w.command + " to try again"}
			}
			return err
		case <-tick.C:
			if p.due() {
				p.print(fmt.Sprintf("waiting for %s (%.0f s; Ctrl-C stops)", waitsFor,
					time.Since(p.began).Seconds()))
			}
		case <-ctx.Done():
			return errInterrupted
		}
	}
}

// ServeHTTP serves the redirect URI.
func (w *loginWait) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != loginpage.RedirectPath || r.Method != http.MethodGet {
		loginpage.Write(rw, http.StatusNotFound, "Not found", "This page is only used by a login.")
		return
	}
	err := w.finish(r.Context(), r.URL.Query())
	if err != nil {
		loginpage.Write(rw, http.StatusBadRequest, "The login has failed",
			w.mask.String(err.Error()), "The terminal shows what to do.")
		return
	}
	loginpage.Write(rw, http.StatusOK, "You are logged in",
		"The gateway can now use "+w.name+forWhom(w.owner)+". You can close this page.")
}

// finish completes the login, unless the redirect belongs to another login.
func (w *loginWait) finish(ctx context.Context, redirect url.Values) error {
	err := w.login.Finish(context.WithoutCancel(ctx), redirect)
	if isNoRedirect(err) || errors.Is(err, oauthclient.ErrFinished) {
		return err
	}
	w.done <- err // capacity 1: only one call gets here
	return err
}

// isNoRedirect reports whether err is ErrOtherLogin or ErrNoRedirect: then the login continues.
func isNoRedirect(err error) bool {
	return errors.Is(err, oauthclient.ErrOtherLogin) || errors.Is(err, oauthclient.ErrNoRedirect)
}

// readRedirects reads pasted redirect URLs until one of them belongs to the login.
func (w *loginWait) readRedirects(ctx context.Context) {
	lines := bufio.NewScanner(w.in)
	for lines.Scan() {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		redirect, err := parseRedirect(text)
		if err == nil {
			err = w.finish(ctx, redirect)
			if !isNoRedirect(err) {
				return
			}
		}
		fmt.Fprintf(w.err, "gateway: %s; paste the address again:\n",
			maskedLine(w.mask, err.Error()))
	}
}

// parseRedirect returns the parameters of a redirect URL.
func parseRedirect(text string) (url.Values, error) {
	u, err := url.Parse(text)
	if err != nil || u.RawQuery == "" {
		return nil, errors.New("this is not the address of the redirect, " +
			"which begins with http://127.0.0.1 and contains code=")
	}
	return u.Query(), nil
}

// listTimeout is the longest wait for the lists of a server that is connected. Some servers have
// none.
const listTimeout = 2 * time.Second

// printResult waits until the backend is connected and listed, and prints what it offers.
func (w *loginWait) printResult(ctx context.Context) error {
	fmt.Fprintf(w.out, "%s: logged in%s\n", w.name, forWhom(w.owner))
	limit, healthySince := w.timeout.channel(), time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		s := w.backends.Status()[0]
		if !isHealthy(s) {
			healthySince = time.Now()
		} else if s.Listed || time.Since(healthySince) > listTimeout {
			printOffer(w.oneShot, s)
			return nil
		}
		problem := hintedError{fmt.Errorf("backend %s: %s", w.name, w.problemText(s)),
			"gateway check shows more"}
		if w.auth.NeedsLogin() != nil {
			return problem
		}
		select {
		case <-tick.C:
		case <-limit:
			return problem
		case <-ctx.Done():
			return errInterrupted
		}
	}
}
