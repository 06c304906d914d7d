package httpclient

import (
	"bytes"
	"html"
	"net/http"
	"strings"
	"unicode"
)

// maxExcerpt is how much of a body a StatusError shows, in bytes.
const maxExcerpt = 200

// maxHead is how much of a body is looked at for that, white space and secrets
// included.
const maxHead = 16 << 10

// statusError returns the error for a response whose body, or the beginning of whose
// body, is not a message for the request.
func (s *httpTarget) statusError(resp *http.Response, body []byte) *StatusError {
	text := s.excerpt(resp, body)
	switch to := s.redirectTarget(resp); {
	case to == "":
	case redirectsBack(resp):
		text = "redirects in a loop, back to " + to + ": check the server, or the proxy in front of it"
	default:
		text = "redirects to " + to + ": put that into url"
	}
	return &StatusError{Code: resp.StatusCode, Text: text, Hint: s.statusHint(resp, body)}
}

// redirectTarget returns where a redirect leads, without query and user: "" if the
// response is not a redirect to an HTTP server.
func (s *httpTarget) redirectTarget(resp *http.Response) string {
	if resp.StatusCode < 300 || resp.StatusCode >= 400 {
		return ""
	}
	to, err := resp.Location()
	if err != nil || to.Hostname() == "" || to.Scheme != "http" && to.Scheme != "https" {
		return ""
	}
	return s.shorten(to.Scheme + "://" + to.Host + to.EscapedPath())
}

// redirectsBack reports whether a redirect leads to a URL that was requested before it.
func redirectsBack(resp *http.Response) bool {
	to, err := resp.Location()
	if err != nil {
		return false
	}
	to.Fragment, to.RawFragment = "", ""
	for ; resp != nil; resp = resp.Request.Response {
		asked := *resp.Request.URL
		asked.Fragment, asked.RawFragment = "", ""
		if asked.String() == to.String() {
			return true
		}
	}
	return false
}

// excerpt returns the beginning of a body on one line, "" if it is not text. Of a page
// it returns the title, or the text between the tags.
func (s *httpTarget) excerpt(resp *http.Response, body []byte) string {
	kind := mediaType(resp)
	switch {
	case kind == "", strings.HasPrefix(kind, "text/"), strings.HasSuffix(kind, "json"),
		strings.HasSuffix(kind, "xml"):
	default:
		return ""
	}
	text := string(bytes.ToValidUTF8(body[:min(len(body), maxHead)], nil))
	if !strings.HasSuffix(kind, "json") && isMarkup(text) {
		text = pageText(text)
	}
	return s.shorten(text)
}

// shorten returns the beginning of a text that a server sent, on one line and without
// control characters and secrets.
func (s *httpTarget) shorten(text string) string {
	text = text[:min(len(text), maxHead)]
	text = s.redact(strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, ""), isSpaceOrUnprintable), " "))
	if len(text) > maxExcerpt {
		text = strings.ToValidUTF8(text[:maxExcerpt], "") + "…"
	}
	return text
}

func isSpaceOrUnprintable(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }

// isMarkup reports whether a text begins with a tag, as HTML and XML do.
func isMarkup(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n\uFEFF")
	return len(text) > 1 && text[0] == '<' && (text[1] == '!' || text[1] == '?' || isLetter(text[1]))
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// pageText returns the title of a page of HTML, or its text if it has none. The page
// may be cut off anywhere.
func pageText(page string) string {
	lower := lowerASCII(page)
	if at := strings.Index(lower, "<title"); at >= 0 {
		if open := strings.IndexByte(page[at:], '>'); open >= 0 {
			title, _, _ := strings.Cut(page[at+open+1:], "<")
			if title = html.UnescapeString(title); strings.TrimFunc(title, isSpaceOrUnprintable) != "" {
				return title
			}
		}
	}
	var text strings.Builder
	for at := 0; at < len(page); {
		open := strings.IndexByte(page[at:], '<')
		if open < 0 {
			text.WriteString(page[at:])
			break
		}
		text.WriteString(page[at : at+open])
		text.WriteByte(' ')
		at = tagEnd(lower, at+open)
	}
	return html.UnescapeString(text.String())
}

// tagEnd returns where the tag that begins at an offset of a page ends. A comment, a
// script and a style end with all that is in them.
func tagEnd(lower string, at int) int {
	for _, whole := range [][2]string{{"<!--", "-->"}, {"<script", "</script"}, {"<style", "</style"}} {
		if strings.HasPrefix(lower[at:], whole[0]) {
			end := strings.Index(lower[at+len(whole[0]):], whole[1])
			if end < 0 {
				return len(lower)
			}
			at += len(whole[0]) + end
			break
		}
	}
	end := strings.IndexByte(lower[at:], '>')
	if end < 0 {
		return len(lower)
	}
	return at + end + 1
}

// lowerASCII returns text with the letters A to Z in lower case: every offset stays.
func lowerASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
