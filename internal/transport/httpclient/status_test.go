package httpclient

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// The excerpt of an error body, and the part that is examined for it, are bounded.
func TestExcerptsAreBounded(t *testing.T) {
	resp := &http.Response{Header: http.Header{"Content-Type": {"text/plain"}}}
	s := &httpTarget{redactor: strings.NewReplacer()}
	if got := s.excerpt(resp, []byte(strings.Repeat("x", maxExcerpt))); len(got) != maxExcerpt {
		t.Errorf("%d bytes", len(got))
	}
	if got := s.excerpt(resp, []byte(strings.Repeat("x", maxExcerpt+1))); got != strings.Repeat("x",
		maxExcerpt)+"…" {
		t.Errorf("%s", got)
	}
	if got := s.excerpt(resp, []byte(strings.Repeat(" ", maxHead)+"x")); got != "" {
		t.Errorf("%s", got)
	}
}

// net/http repeats the header Location in its error if the header is not a URL.
func TestErrorTextIsBounded(t *testing.T) {
	s, err := newTarget(Options{URL: "http://localhost/?secret"})
	if err != nil {
		t.Fatal(err)
	}
	err = s.redactError(errors.New("secret" + strings.Repeat("é", maxErrorText)))
	if got := err.Error(); len(got) > maxErrorText+len("…") || !strings.HasPrefix(got, "***é") ||
		!strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}
