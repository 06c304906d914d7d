package logging_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"mcpgateway/internal/logging"
)

func TestMask(t *testing.T) {
	mask := logging.NewMask(
		"s3cret", "s3cret-and-more", "more-to-come", "  padded\n", "a\"b\\c\nd€&",
		"Bearer tok/en+1", "Basic dXNlcg==", "", "0", "on", "****", "first line\nsecond line",
	)
	for _, c := range []struct{ in, want string }{
		{"nothing to see", "nothing to see"},
		{"", ""},
		{"a s3cret b", "a *** b"},
		{"s3crets3cret", "******"},
		{"a s3cret-and-more b", "a *** b"},      // the longer secret as a whole
		{"a s3cret-and-more-to-come", "a ***"},  // overlapping: no end of either secret remains
		{"x=padded.", "x=***."},                 // without the space around the value
		{`{"k":"a\"b\\c\nd€&"}`, `{"k":"***"}`}, // JSON
		{`{"k":"a\"b\\c\nd€\u0026"}`, `{"k":"***"}`},
		{"k=" + url.QueryEscape("a\"b\\c\nd€&"), "k=***"},
		{"k/" + url.PathEscape("a\"b\\c\nd€&"), "k/***"},
		{"token tok/en+1 alone", "token *** alone"}, // the token in a header value
		{"user dXNlcg==", "user ***"},
		{"only the second line here", "only the *** here"},
		{"0 on 10 ****", "0 on 10 ****"},

		{"https://me:pw@host:8/p", "https://***@host:8/p"},
		{"https://token@host/p and http://h/p@q", "https://***@host/p and http://h/p@q"},
		{"postgres://u:p@ss@host", "postgres://***@host"},
		{`Get "https://h/mcp?key=v&x=1": EOF`, `Get "https://h/mcp?***": EOF`},
		{"see https://h/p? and https://h/#a?b", "see https://h/p? and https://h/#a?***"},
		{"https://***@host/?***", "https://***@host/?***"},
		{"https://h/{+path}{?q,n*}{&r:3} and https://{user}:{pw}@h/?q={q}&n={n}{&m}#{+f}",
			"https://h/{+path}{?q,n*}{&r:3} and https://{user}:{pw}@h/?q={q}&n={n}{&m}#{+f}"},
		{"name=odd://t/{+path}{?q} https://h{?q}?a=b https://h/?key=v1{&q}",
			"name=odd://t/{+path}{?q} https://h{?q}?*** https://h/?***"},
		{"https://h/?q={q}&v2 https://h/?{not one} https://u{user}:x@h/{?",
			"https://h/?*** https://h/?*** one} https://***@h/{?"},
		{`{"u":"https://h/?a=b\"c"}`, `{"u":"https://h/?***\"c"}`},

		{"Authorization: Bearer abc.def-_~+/=", "Authorization: Bearer ***"},
		{"authorization: basic Zm9v, x", "authorization: basic ***, x"},
		{"AUTHORIZATION: abc1, BEARER def2", "AUTHORIZATION: ***, BEARER ***"},
		{"proxy-Authorization=abc", "proxy-Authorization=***"},
		{`{"Authorization":"abc","b":1}`, `{"Authorization":"***","b":1}`},
		{`{\"Authorization\": \"Token abc\"}`, `{\"Authorization\": \"Token ***\"}`},
		{"map[Authorization:[Bearer abc] Accept:[*/*]]",
			"map[Authorization:[Bearer ***] Accept:[*/*]]"},
		{"Authorization failed", "Authorization failed"},
		{"Authorization: ", "Authorization: "},
		{"got Bearer xx1 here", "got Bearer *** here"},
		{"bearer of news, bearer 0123456789abcdef", "bearer of news, bearer ***"},
		{`WWW-Authenticate: Bearer realm="mcp", error="x"`,
			`WWW-Authenticate: Bearer realm="mcp", error="x"`},
		{`Bearer realm=\"mcp\"`, `Bearer realm=\"mcp\"`},
		{"Bearer ***", "Bearer ***"},
	} {
		if got := mask.String(c.in); got != c.want {
			t.Errorf("String(%q)\n got %q\nwant %q", c.in, got, c.want)
		}
		if got := mask.String(c.want); got != c.want {
			t.Errorf("a second pass makes %q of %q", got, c.want)
		}
	}
}

// TestMaskKeepsWords_F_CLI_8: words in messages about headers and tokens are not masked, but
// tokens are.
func TestMaskKeepsWords_F_CLI_8(t *testing.T) {
	mask := logging.NewMask("some-known-secret")
	for _, text := range []string{
		"headers.Authorization: variable DOCS_TOKEN is not set: set it where the gateway is started",
		"headers.Authorization: variable DOCS_TOKEN is empty",
		"headers.Authorization: must be a string, not a list",
		"authorization: use ${DOCS_TOKEN}",
		"authorization: Use a bearer token. See the manual",
		"Unauthorized: send the header Authorization: Bearer TOKEN",
		"the token in the header Authorization is not in auth.tokens; check it, or ask the operator",
		"the header Authorization has no bearer token; send the header Authorization: Bearer TOKEN",
		`claude mcp add --transport http NAME URL -H 'Authorization: Bearer TOKEN'`,
		`claude mcp add gateway http://127.0.0.1:7420/mcp -H 'Authorization: Bearer '$GATEWAY_TOKEN`,
		`claude mcp add gateway http://127.0.0.1:7420/mcp -H "Authorization: Bearer $GATEWAY_TOKEN"`,
		`{"Authorization": "Bearer ${DOCS_TOKEN}"}`,
		`{"headers": {"Authorization": "Bearer YOUR_API_KEY"}}`,
		"Authorization: $DOCS_TOKEN, Authorization=%TOKEN%",
		"Authorization header missing", "missing authorization: required",
		"Authorization: Basic authentication is off",
		"Bearer tokens are not accepted", "Bearer authentication", "Bearer token missing.",
		"bearer authentication",
		"Access-Control-Allow-Headers: Accept, Authorization, Content-Type",
		`"authorization": "required by the server"`,
		`{"authorization":true}`,
	} {
		if got := mask.String(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	const token = "gh" + "p_0123456789abcdefghij"
	for _, text := range []string{
		"Bearer @", "Authorization: @", "Authorization: Bearer @", "authorization: basic @",
		"Authorization=@", `"authorization":"@"`,
		"Authorization:@", "send Authorization: Token @.", "{'Authorization': 'Bot @'}",
	} {
		for _, secret := range []string{token, "abc123", "Zm9vOmJhcg", "a-token-of-words",
			"abcdefghijklmnopqrstuvwxyz", "AK" + "IAIOSFODNN7EXAMPLE"} {
			if got := mask.String(strings.ReplaceAll(text, "@", secret)); strings.Contains(got,
				secret) {
				t.Errorf("a secret is in %q", got)
			}
		}
	}
}

func TestMaskWithoutSecrets(t *testing.T) {
	const s = "https://me:pw@host Bearer abc1"
	var zero logging.Mask
	if got := zero.String(s); got != s {
		t.Errorf("zero: %q", got)
	}
	if got := (*logging.Mask)(nil).String(s); got != s {
		t.Errorf("nil: %q", got)
	}
	zero.Add("host")
	if got, want := zero.String(s), "https://***@*** Bearer ***"; got != want {
		t.Errorf("after Add: %q", got)
	}
}

func TestMaskWhileAdding(t *testing.T) {
	mask := logging.NewMask()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				secret := "secret-" + strconv.Itoa(i) + "-" + strconv.Itoa(j) + "."
				mask.Add(secret)
				if got := mask.String(secret); got != "***" {
					t.Errorf("after Add: %q", got)
				}
			}
		})
	}
	wg.Wait()
	if got := mask.String("secret-0-0. secret-7-19."); got != "*** ***" {
		t.Errorf("an Add was lost: %q", got)
	}
}

// A replaced token may still be used by a process that is about to end. The number of past
// secrets is limited, because each is searched for in every line.
func TestMaskKeepsPastSecrets(t *testing.T) {
	mask := logging.NewMask("secret-of-once", "secret-that-stays")
	for i := range 1000 {
		mask.SetSecrets("secret-number-"+strconv.Itoa(i)+".", "secret-that-stays")
	}
	for text, want := range map[string]string{
		"secret-number-999.": "***",
		"secret-number-998.": "***",
		"secret-number-743.": "***",                // 256 before the last
		"secret-number-742.": "secret-number-742.", // the 257th before the last
		"secret-of-once":     "secret-of-once",
		"secret-that-stays":  "***",
	} {
		if got := mask.String(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	mask.SetSecrets()
	mask.SetSecrets("secret-number-800.")
	if got := mask.String(
		"secret-number-800. secret-number-999. secret-that-stays"); got != "*** *** ***" {
		t.Errorf("known again: %s", got)
	}
}

func TestMaskKeepsTheLatestTokens(t *testing.T) {
	mask := logging.NewMask("configured-secret")
	mask.AddToken("another backend", "token-of-another.")
	for i := range 600 {
		mask.AddToken("backend", "token-number-"+strconv.Itoa(i)+".")
		mask.AddToken("backend", "token-in-use.")
	}
	mask.SetSecrets("another-secret")
	for text, want := range map[string]string{
		"token-of-another.": "***",
		"token-in-use.":     "***",
		"token-number-599.": "***",
		"token-number-537.": "***",               // the last of 64
		"token-number-536.": "token-number-536.", // one more
		"another-secret":    "***",
		"configured-secret": "***",
	} {
		if got := mask.String(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestMaskBoundsTheTokensByLengthAndNumber(t *testing.T) {
	mask := logging.NewMask()
	long := func(i int) string { return strconv.Itoa(i) + strings.Repeat("x", 64<<10-3) + "." }
	for i := range 8 {
		mask.AddToken("malicious", long(i))
	}
	if mask.String(long(7)) != "***" || mask.String(long(4)) != "***" {
		t.Error("the latest tokens are not masked")
	}
	if mask.String(long(3)) == "***" {
		t.Error("more than 256 KiB of tokens are masked")
	}
	mask = logging.NewMask() // each long token costs time
	for i := range 600 {
		mask.AddToken("backend-"+strconv.Itoa(i), "token-number-"+strconv.Itoa(i)+".")
	}
	if mask.String("token-number-88.") != "***" || mask.String("token-number-87.") == "***" {
		t.Error("not the latest 512 tokens are masked")
	}
}

func TestMaskAllocatesNothing(t *testing.T) {
	mask := logging.NewMask(manySecrets(20)...)
	for _, line := range []string{
		"https://host/mcp/path: a line without any secret, of usual length",
		"https://host/mcp/path: 1+1, 50% of it, and a%20name",
	} {
		if n := testing.AllocsPerRun(100, func() { mask.String(line) }); n != 0 {
			t.Errorf("%q: %v allocations", line, n)
		}
	}
}

// someEncoded returns s with some of its bytes percent-encoded: those in must, and others as
// selected by bits, which also decides whether spaces become +.
func someEncoded(s, must string, bits uint64) string {
	var b strings.Builder
	for i := range len(s) {
		digits := "%%%02X"
		if bits>>((i+7)%64)&1 == 1 {
			digits = "%%%02x"
		}
		switch {
		case s[i] == ' ' && bits>>((i+13)%64)&1 == 1:
			b.WriteByte('+')
		case bits>>(i%64)&1 == 1 || strings.IndexByte(must, s[i]) >= 0:
			fmt.Fprintf(&b, digits, s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// TestMaskPercentEncoded_F_MASK_1: encoders differ in the bytes that they encode, and in the
// case of the digits.
func TestMaskPercentEncoded_F_MASK_1(t *testing.T) {
	const secret, phrase, json = "q9Zk/Tm4v+Xr7Lw2Pb8N/dY6c==", "pass: phrase & more+é", `a"b/c&d`
	mask := logging.NewMask(secret, phrase, json, "100%41sure/")
	for _, c := range []struct{ in, want string }{
		{"u=q9Zk/Tm4v%2BXr7Lw2Pb8N/dY6c%3D%3D.", "u=***."}, // Python's quote
		{"u=q9Zk%2fTm4v%2bXr7Lw2Pb8N%2fdY6c%3d%3d&x", "u=***&x"},
		{"u=q9Zk%2FTm4v%2bXr7Lw2Pb8N/dY6c=%3D", "u=***"},
		{"u=q9Zk%2FTm4v+Xr7Lw2Pb8N%2FdY6c==", "u=***"}, // Go's PathEscape
		{"%71%39Zk/Tm4v+Xr7Lw2Pb8N/dY6c==", "***"},
		{"pass%3A%20phrase%20%26%20more%2B%C3%A9", "***"}, // encodeURIComponent
		{"pass:%20phrase%20&%20more+%C3%A9", "***"},       // encodeURI
		{"pass%3A+phrase+%26+more%2B%c3%a9", "***"},       // a form
		{"x=pass:+phrase+&+more+é", "x=***"},
		{"a%22b%2Fc%26d a%5C%22b%2fc\\u0026d", "*** ***"}, // JSON, percent-encoded in part
		{"100%2541sure%2F", "***"},
		// twice
		{"https%3A%2F%2Fh%2F%3Fk%3Dq9Zk%252FTm4v%252BXr7Lw2Pb8N%252FdY6c%253D%253D%26b",
			"https%3A%2F%2Fh%2F%3Fk%3D***%26b"},
		{"k%253Dq9Zk%25252FTm4v%25252bXr7Lw2Pb8N%25252FdY6c%25253D%25253D", "k%253D***"},
		{"50% of %zz %2 % 1+1 %25 %2541", "50% of %zz %2 % 1+1 %25 %2541"},
		{"é%C3%A9 " + secret + " %2F", "é%C3%A9 *** %2F"},
	} {
		if got := mask.String(c.in); got != c.want {
			t.Errorf("String(%q)\n got %q\nwant %q", c.in, got, c.want)
		}
	}
}

// someEscaped returns s with some of its characters escaped as in JSON: those selected by bits, and
// those that must be escaped.
func someEscaped(s string, bits uint64) string {
	var b strings.Builder
	i := 0
	for _, r := range s {
		i++
		switch digits := []string{"\\u%04x", "\\u%04X"}[bits>>((i+7)%64)&1]; {
		case r > 0xffff && bits>>(i%64)&1 == 1:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, digits+digits, high, low)
		case r < ' ' || r <= 0xffff && bits>>(i%64)&1 == 1:
			fmt.Fprintf(&b, digits, r)
		case strings.ContainsRune(`"\`, r) || r == '/' && bits>>((i+13)%64)&1 == 1:
			b.WriteString("\\" + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// TestMaskEscaped: encoders of JSON differ in the characters that they escape, and in the case
// of the digits.
func TestMaskEscaped(t *testing.T) {
	const secret, letters = "q9Zk/Tm4v+Xr7Lw2Pb8N/dY6c==", "pass\"wörd\\\U0001F600<&>"
	mask := logging.NewMask(secret, letters, "100%41sure/", "two lines\nof it")
	for _, c := range []struct{ in, want string }{
		{`{"v":"q9Zk\/Tm4v+Xr7Lw2Pb8N\/dY6c=="}`, `{"v":"***"}`},              // PHP
		{`{"v":"q9Zk/Tm4v\u002BXr7Lw2Pb8N/dY6c\u003D\u003D"}`, `{"v":"***"}`}, // .NET
		{`{"v":"q9Zk\u002fTm4v\u002bXr7Lw2Pb8N/dY6c\u003d="}`, `{"v":"***"}`}, // Java
		// the first and the last
		{`"\u0071\u0039Zk/Tm4v+Xr7Lw2Pb8N/dY6c=\u003D."`, `"***."`},
		{`pass\"w\u00f6rd\\\ud83d\ude00<&>`, `***`},                            // Python
		{`pass\u0022w\u00F6rd\u005C\uD83D\uDE00\u003C\u0026\u003E x`, `*** x`}, // .NET
		{`pass\"wörd\\😀\u003c&\u003e`, `***`},
		{`b'pass"w\xc3\xb6rd\\\xf0\x9f\x98\x80<&>'`, `b'***'`}, // Python's bytes
		{`"pass\"w\u00f6rd\\\U0001f600<&>"`, `"***"`},          // Go's %+q
		{`pass\"wörd\\😀\<\&\>`, `***`},                         // a shell
		{`"{\"v\":\"q9Zk\\/Tm4v\\u002BXr7Lw2Pb8N\\/dY6c==\"}"`, `"{\"v\":\"***\"}"`},
		{`https:\/\/h\/?u=q9Zk%2FTm4v%2BXr7Lw2Pb8N\/dY6c%3D%3D`, `https:\/\/h\/?u=***`},
		{`v=q9Zk%5C%2FTm4v%5Cu002bXr7Lw2Pb8N%5C/dY6c==`, `v=***`},
		{`"u":"100%41sure\/"`, `"u":"***"`},
		{`"two\u0020lines\u000Aof it"`, `"***"`},
		{`a \ b \u00 \u12G4 \q \/ \x4 \`, `a \ b \u00 \u12G4 \q \/ \x4 \`},
		{`C:\q9Zk/Tm4v+Xr7Lw2Pb8N/dY6c==`, `C:\***`},
	} {
		if got := mask.String(c.in); got != c.want {
			t.Errorf("String(%q)\n got %q\nwant %q", c.in, got, c.want)
		}
	}
}

// TestMaskVariants: other forms of a value, for example in URLs and names of tools.
func TestMaskVariants(t *testing.T) {
	mask := logging.NewMask(
		"Zq8+f7/d6s5a4zzKx90Lm==", `Sek/ret+"q8f7é-d6`, "a/b c", "=/=+====", "==========",
	)
	for _, c := range []struct{ in, want string }{
		{"x Zq8-f7_d6s5a4zzKx90Lm==, Zq8+f7/d6s5a4zzKx90Lm.", "x ***, ***."},
		{"tool=b__get_Sek_ret__q8f7_-d6_1a2b", "tool=b__get_***_1a2b"},
		{"a_b_c and __ and _-", "a_b_c and __ and _-"},
	} {
		if got := mask.String(c.in); got != c.want {
			t.Errorf("String(%q)\n got %q\nwant %q", c.in, got, c.want)
		}
	}
}

// TestMaskOfTruncatedText: the beginning of a secret at the end of a truncated text is masked.
func TestMaskOfTruncatedText(t *testing.T) {
	mask := logging.NewMask("q9Zk/Tm4v+Xr7Lw2é8N", `quo"te/d`, "first line\nsecond one")
	for _, c := range []struct{ in, want string }{
		{`the result is not an object: "rrrq9Zk/Tm4v+Xr7Lw…`,
			`the result is not an object: "rrr***…`},
		{"q9Zk…, q9Z…, q9Zk", "***…, q9Z…, q9Zk"},
		{"q9Zk/Tm4v+Xr7Lw2…", "***…"},
		{"second o… and first l…", "***… and ***…"},
		{`{"v":"q9Zk\/Tm4v\u002bXr…`, `{"v":"***…`},
		{`"q9Zk\/Tm4v\u00…`, `"***…`},
		{`"q9Zk\/Tm4v\…`, `"***…`},
		{`x=q9Zk%2FTm4v%2…`, `x=***…`},
		{`x=q9Zk%2FTm4v%…`, `x=***…`},
		{`"{\"v\":\"quo\\\"te\\…`, `"{\"v\":\"***…`},
		{"nothing of it… at 50%… or in C:\\…", "nothing of it… at 50%… or in C:\\…"},
	} {
		if got := mask.String(c.in); got != c.want {
			t.Errorf("String(%q)\n got %q\nwant %q", c.in, got, c.want)
		}
	}
}

// TestMaskCostIsBounded: the time for texts that resemble an encoded secret is at most a constant
// factor longer than for other texts of the same length.
func TestMaskCostIsBounded(t *testing.T) {
	mask := logging.NewMask(
		append(manySecrets(50), "aaaa+aaaa/aaaab", strings.Repeat("long-secret-", 300))...)
	for _, part := range []string{`\u0061`, `%2561`, `\\`, `\\u002561%5C`, "…aaaa", "aaaa…",
		"long-secret-", "long-secret…", `%5c%5c%25`, `a+\/%2`} {
		text := strings.Repeat(part, (64<<10)/len(part))
		start := time.Now()
		mask.String(text)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%q: %v", part, took)
		}
	}
}

func FuzzMask(f *testing.F) {
	f.Add("s3cret", "other", "a s3cret https://u:p@h/?q Bearer other", uint64(0))
	f.Add("aaaa", "aaab", "aaaaaaab", uint64(1))
	f.Add("q9Zk/Tm4v+X=", "two words", "%2F+q9Zk%2fTm4v", ^uint64(0))
	f.Fuzz(func(t *testing.T, one, two, text string, bits uint64) {
		mask := logging.NewMask(one, two)
		quoted, _ := json.Marshal(text)
		for _, in := range []string{text, text + one + text, two[len(two)/2:] + one + two,
			url.QueryEscape(text + one), string(quoted)} {
			out := mask.String(in)
			for _, s := range []string{one, two} {
				s = strings.TrimSpace(s)
				if len(s) >= 4 && !strings.Contains(s, "*") && strings.Contains(out, s) {
					t.Errorf("%q is in %q", s, out)
				}
			}
		}
		// Percent-encoded once and twice, whichever bytes are encoded. Every encoder encodes %, and
		// also + if it replaces spaces by +.
		if one = strings.TrimSpace(one); len(one) < 4 || strings.Contains(one, "*") {
			return
		}
		once := someEncoded(one, "%", bits)
		for _, in := range []string{once, someEncoded(once, "%", bits>>9)} {
			if got := mask.String("=" + in + "="); strings.Contains(got, in) {
				t.Errorf("%q, encoded as %q, is in %q", one, in, got)
			}
		}
		if utf8.ValidString(one) {
			once = someEscaped(one, bits)
			for _, in := range []string{once, someEscaped(once, bits>>9),
				someEncoded(once, "%", bits>>5)} {
				if got := mask.String("=" + in + "="); strings.Contains(got, in) {
					t.Errorf("%q, escaped as %q, is in %q", one, in, got)
				}
			}
		}
	})
}
