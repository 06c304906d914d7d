package httpclient

import (
	"bytes"
	"html"
	"net/http"
	"strings"
	"unicode"

	"mcpgateway/internal/text"
)

// maxExcerpt bounds the part of a body that a StatusError shows, in bytes.
const maxExcerpt = 200

// maxHead bounds the part of a body from which the excerpt is taken, in bytes.
const maxHead = 16 << 10

// statusError returns the error for a response that contains no message. body may be incomplete.
func (t *httpTarget) statusError(resp *http.Response, body []byte) *StatusError {
	text := t.excerpt(resp, body)
	switch to := t.redirectTarget(resp); {
	case to == "":
	case redirectsBack(resp):
		text = "redirects in a loop, back to " + to +
			": check the server, or the proxy in front of it"
	default:
		text = "redirects to " + to + ": put that into url"
	}
	return &StatusError{Code: resp.StatusCode, Text: text, Hint: t.statusHint(resp, body)}
}

// redirectTarget returns the URL to which a response redirects, without query and user; "" = not a
// redirect to an HTTP server.
func (t *httpTarget) redirectTarget(resp *http.Response) string {
	if resp.StatusCode < 300 || resp.StatusCode >= 400 {
		return ""
	}
	to, err := resp.Location()
	if err != nil || to.Hostname() == "" || to.Scheme != "http" && to.Scheme != "https" {
		return ""
	}
	return t.shorten(to.Scheme + "://" + to.Host + to.EscapedPath())
}

// redirectsBack reports whether the target of a redirect was already requested in the same chain of
// redirects.
func redirectsBack(resp *http.Response) bool {
	to, err := resp.Location()
	if err != nil {
		return false
	}
	to.Fragment, to.RawFragment = "", ""
	for ; resp != nil; resp = resp.Request.Response {
		requested := *resp.Request.URL
		requested.Fragment, requested.RawFragment = "", ""
		if requested.String() == to.String() {
			return true
		}
	}
	return false
}

// excerpt returns the beginning of a body on one line; "" = the body is not text. For an HTML page,
// the method excerpt returns the title, or the text between the tags.
func (t *httpTarget) excerpt(resp *http.Response, body []byte) string {
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
	return t.shorten(text)
}

// shorten returns the beginning of a text from the server on one line, without control characters
// and secrets.
func (t *httpTarget) shorten(s string) string {
	s = s[:min(len(s), maxHead)]
	words := strings.FieldsFunc(strings.ToValidUTF8(s, ""), isSpaceOrUnprintable)
	return text.Truncate(t.redact(strings.Join(words, " ")), maxExcerpt)
}

func isSpaceOrUnprintable(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }

// isMarkup reports whether a text starts with a tag, like HTML and XML.
func isMarkup(text string) bool {
	text = strings.TrimLeft(text, " \t\r\n\uFEFF")
	return len(text) > 1 && text[0] == '<' &&
		(text[1] == '!' || text[1] == '?' || isLetter(text[1]))
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// pageText returns the title of an HTML page, or the text of a page without a title. The page may
// be truncated anywhere.
func pageText(page string) string {
	lower := lowerASCII(page)
	if at := strings.Index(lower, "<title"); at >= 0 {
		if open := strings.IndexByte(page[at:], '>'); open >= 0 {
			title, _, _ := strings.Cut(page[at+open+1:], "<")
			title = html.UnescapeString(title)
			if strings.TrimFunc(title, isSpaceOrUnprintable) != "" {
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

// tagEnd returns the end of the tag at the given offset. For a comment, a script or a style, this
// is the end of the element with its content.
func tagEnd(lower string, at int) int {
	for _, whole := range [][2]string{
		{"<!--", "-->"}, {"<script", "</script"}, {"<style", "</style"},
	} {
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

// lowerASCII returns text with A to Z in lower case. All offsets stay the same.
func lowerASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
