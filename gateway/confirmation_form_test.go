package gateway_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"unicode"

	"mcpgateway/gateway"
)

// shownForm returns the lines of the question's message.
func shownForm(t testing.TB, tool string, arguments []byte, mask func(string) string) []string {
	t.Helper()
	var params struct{ Message string }
	err := json.Unmarshal(gateway.ConfirmationParams("gh", tool, arguments, mask), &params)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(params.Message, "\n")
}

// checkForm checks that the untrusted text is on its own lines and visible.
func checkForm(t testing.TB, lines []string) {
	t.Helper()
	if n := len(lines); n != 6 && n != 8 ||
		lines[0] != "The gateway requires that you confirm this call before it runs:" ||
		lines[1] != "" || lines[2] != "    backend: gh" ||
		!strings.HasPrefix(lines[3], `    tool: "`) ||
		!strings.HasPrefix(lines[4], "    arguments: ") || lines[5] != "" ||
		n == 8 && (!strings.HasSuffix(lines[6], " bytes. Only their beginning is shown.") ||
			lines[7] != "") {
		t.Errorf("the question is %q", lines)
	}
	for _, line := range lines {
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%q is not visible at %d", line, i)
		}
	}
}

// Names and arguments are shown as JSON on one line each. No text of a client or backend can look
// like another line, be invisible, or change how other text appears.
func TestConfirm_FormShowsUntrustedText(t *testing.T) {
	for _, c := range []struct{ tool, arguments, line, shown string }{
		{"del_a", "{ \"a\" :\n [1.0, \"x y\"\t,{}]}", `"del_a"`, `{"a":[1.0,"x y",{}]}`},
		{"del_a", ``, `"del_a"`, `none`},
		{"del_a", `{}`, `"del_a"`, `{}`},
		{"del\n    arguments: {}\"", `{"a":"x\"}\n\nConfirmed."}`, `"del\n    arguments: {}\""`,
			`{"a":"x\"}\n\nConfirmed."}`},
		{"del\u202egnp", "{\"\u2066a\":\"\u2028\u00a0\u00ad\u200b\U000e0041\ufe0f\u3164\u2800\"}",
			`"del\u202egnp"`, `{"\u2066a":"\u2028\u00a0\u00ad\u200b\udb40\udc41\ufe0f\u3164\u2800"}`},
		{"ä[x](y)", `{"a":"\\","b":"é 😀 <b>"}`, `"ä[x](y)"`, `{"a":"\\","b":"é 😀 <b>"}`},
		{"x", `{"path":"/safe","path":"/etc"}`, `"x"`, `{"path":"/safe","path":"/etc"}`},
		{"x", "{\"a\":\"\xff\"}", `"x"`, "{\"a\":\"\uFFFD\"}"},
	} {
		arguments := []byte(c.arguments)
		if c.arguments == "" {
			arguments = nil
		}
		lines := shownForm(t, c.tool, arguments, unmasked)
		checkForm(t, lines)
		if lines[3] != "    tool: "+c.line || lines[4] != "    arguments: "+c.shown {
			t.Errorf("%q %q: shown as %q", c.tool, c.arguments, lines)
		}
	}
}

// Long names and arguments are cut, which the question says, also if white space is in front.
func TestConfirm_FormIsBounded(t *testing.T) {
	for _, arguments := range []string{
		`{"a":"` + strings.Repeat("x", 5000) + `"}`,
		`{"a":"` + strings.Repeat("\u202e", 2000) + `"}`,
		`{` + strings.Repeat(" ", 100_000) + `"a":"` + strings.Repeat("é", 1<<20) + `"}`,
	} {
		lines := shownForm(t, strings.Repeat("t", 10_000), []byte(arguments), unmasked)
		checkForm(t, lines)
		if len(lines[3]) > 300 || len(lines[4]) > 4<<10+40 || len(lines[4]) < 4000 ||
			!strings.HasPrefix(lines[4], `    arguments: {"a":"`) ||
			!strings.HasSuffix(lines[4], "…") ||
			lines[6] != fmt.Sprintf("The arguments have %d bytes. Only their beginning is shown.",
				len(arguments)) {
			t.Errorf("shown as %.300q", lines)
		}
	}
	lines := shownForm(t, "x", []byte(`{`+strings.Repeat(" ", 100_000)+`"a":1}`), unmasked)
	if len(lines) != 6 || lines[4] != `    arguments: {"a":1}` {
		t.Errorf("shown as %.300q", lines)
	}
}

func unmasked(text string) string { return text }

// Secrets are masked before the text is escaped or cut. A secret that is cut in front of the mask
// is marked by an ellipsis, by which the mask recognizes it.
func TestConfirm_FormMasksSecrets(t *testing.T) {
	const secret = "s3cr/t-valüe-of-the-backend"
	mask := func(text string) string {
		for n := len(secret); n > 3; n-- {
			text = strings.ReplaceAll(text, secret[:n]+"…", "***…")
		}
		return strings.ReplaceAll(text, secret, "***")
	}
	for _, arguments := range []string{
		`{"a":"` + secret + `"}`,
		`{"` + secret + `":1}`,
		`{"a":"` + strings.Repeat("x", 4080) + secret + `"}`,
		`{"a":"` + strings.Repeat("x", 16<<10-20) + secret + `"}`,
	} {
		text := strings.Join(shownForm(t, "x"+secret, []byte(arguments), mask), "\n")
		if strings.Contains(text, "s3cr") {
			t.Errorf("%.200q is shown as %.300q", arguments, text)
		}
	}
}

// The question has no label: a backend cannot ask a question that looks like it.
func TestConfirm_BackendCannotImitateQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client, gh := openConfirm(t, confirmSettings("legacy"), "2025-11-25", formCap)
		client.Send(callDel("1"))
		question := wantQuestion(t, client)
		client.SendResult(question.ID(), confirmed)
		gh.WantRequest("tools/call")
		imitation := strings.Replace(string(question.Raw()), "del_a", "get", 1)
		gh.Send(imitation)
		m := client.WantRequest("elicitation/create")
		if got := paramAt(t, m, "message"); !strings.HasPrefix(got, `"[gh] The gateway`) {
			t.Errorf("the backend's request is %s", got)
		}
	})
}

// FuzzConfirmationForm checks that no names or arguments look like another line of the question.
func FuzzConfirmationForm(f *testing.F) {
	f.Add("del_a", []byte(`{"a":"\n\u202e"}`))
	f.Add("\n\u202e\"", []byte("{\"\\\\\": \"\u2066\", \"\xff\":\"\t\"}"))
	f.Add("", []byte(`"`))
	f.Fuzz(func(t *testing.T, tool string, arguments []byte) {
		if len(arguments) == 0 {
			arguments = nil
		}
		checkForm(t, shownForm(t, tool, arguments, unmasked))
	})
}
