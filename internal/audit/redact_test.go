package audit

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"mcpgateway/internal/logging"
)

func known(secret string) func(string) string {
	return func(s string) string { return strings.ReplaceAll(s, secret, "***") }
}

func TestRedact(t *testing.T) {
	mask := known("s3cret")
	for _, c := range []struct{ in, want string }{
		{`{"a": 1.50, "b":[true, null ,"x\/y\u0041"] }`, `{"a": 1.50, "b":[true, null ,"x\/y\u0041"] }`},
		{`{"password":"x"}`, `{"password":"***"}`},
		{`{"Api-Key" : 12 , "x":1}`, `{"Api-Key" : "***" , "x":1}`},
		{`{"x-api-key":-1e5}`, `{"x-api-key":"***"}`},
		{`{"db_PassWd":null,"COOKIE":true,"pin":1234}`, `{"db_PassWd":null,"COOKIE":true,"pin":"***"}`},
		{`{"credentials":{"a":[1,{"b":"}"}]},"c":2}`, `{"credentials":"***","c":2}`},
		{`[{"private_key":["a","]"]},3]`, `[{"private_key":"***"},3]`},
		{`{"pass\u0077ord":"x"}`, `{"pass\u0077ord":"***"}`},
		{`{"access_token":"x","max_tokens":5,"tokenizer":"bpe"}`, `{"access_token":"***","max_tokens":5,"tokenizer":"bpe"}`},
		{`["password","x"]`, `["password","x"]`}, // no key
		{`{"a":"the s3cret <b>"}`, `{"a":"the *** <b>"}`},
		{`{"a":"the s\u0033cret\n"}`, `{"a":"the ***\n"}`},
		{`{"s3cret":"a"}`, `{"***":"a"}`},
		{`{"text":"{\"password\":\"x\", \"n\":1}"}`, `{"text":"{\"password\":\"***\", \"n\":1}"}`}, // JSON in a string
		{`{"text":"[info] \"all\" is well"}`, `{"text":"[info] \"all\" is well"}`},
		{`"s3cret"`, `"***"`},
		{``, ``},

		// truncated, or invalid
		{`{"password":"x`, `{"password":"***`},
		{`{"password":{"a":[`, `{"password":"***"`},
		{`{"password":}`, `{"password":}`},
		{`{"password":`, `{"password":`},
		{`{"a":"the s3cret`, `{"a":"the ***`},
		{`{"a":"b\`, `{"a":"b\`},
		{`{"text":"{\"password\":\"x`, `{"text":"{\"password\":\"***`},
		{`{"text":"{\"password\":\"x\u00`, `{"text":"{\"password\":\"***\u00`},
		{`}]s3cret`, `}]s3cret`}, // the text around is masked by payload
	} {
		in := []byte(c.in)
		if got := string(redact(in, mask)); got != c.want {
			t.Errorf("redact(%s)\n got %s\nwant %s", c.in, got, c.want)
		}
		if string(in) != c.in {
			t.Errorf("changed its argument %s to %s", c.in, in)
		}
		if got := string(redact([]byte(c.want), mask)); got != c.want {
			t.Errorf("a second pass makes %s of %s", got, c.want)
		}
	}
	if got := redact([]byte(`{"n":12345678,"m":13450}`), known("345")); string(got) != `{"n":"***","m":"***"}` {
		t.Errorf("numbers: %s", got)
	}
	if got := redact([]byte("100"), known("0")); string(got) != redactedJSON {
		t.Errorf("a number alone: %s", got)
	}
}

// TestRedact_F_SEC_10: the names of secrets are defined by package secrets, and texts are searched.
func TestRedact_F_SEC_10(t *testing.T) {
	const token = "gh" + "p_0123456789abcdefghij"
	for _, c := range []struct{ in, want string }{
		{`{"pass":"a","dsn":"b","auth":"c","password":"d","jwt":"e","pin":12}`, `{"pass":"***","dsn":"***","auth":"***","password":"***","jwt":"***","pin":"***"}`},
		{`{"auth":{"user":"u","x":["y"]},"authkey":"z"}`, `{"auth":"***","authkey":"***"}`},
		{`{"auth":true,"password":"","max_tokens":5,"author":"x","public_key":"x","session_timeout":3}`, `{"auth":true,"password":"","max_tokens":5,"author":"x","public_key":"x","session_timeout":3}`},
		{`{"content":[{"type":"text","text":"{\"dsn\":\"x\",\"n\":[1]}"}]}`, `{"content":[{"type":"text","text":"{\"dsn\":\"***\",\"n\":[1]}"}]}`},
		{`{"text":"Result:\n{\"pass\": \"x\", \"n\": 1}"}`, `{"text":"Result:\n{\"pass\": \"***\", \"n\": 1}"}`},
		{`{"text":"\"{\\\"auth\\\":\\\"x1\\\"}\""}`, `{"text":"\"{\\\"auth\\\":\\\"***\\\"}\""}`},
		{`{"text":"a: 1\npassword: hunter2\nDB_PASS=x y=1\n{'auth': 'z1'}"}`, `{"text":"a: 1\npassword: ***\nDB_PASS=*** y=1\n{'auth': '***'}"}`},
		{`{"text":"Authorization: Bearer abc1, and Cookie: a=b; c=d\nX"}`, `{"text":"Authorization: Bearer ***, and Cookie: ***\nX"}`},
		{`{"cmd":"x --api-key k1 --host h --token=t1 -v"}`, `{"cmd":"x --api-key *** --host h --token=*** -v"}`},
		{`{"q":"see ` + token + `."}`, `{"q":"see ***"}`},
		{`{"q":"host=db user=u password=p1 dbname=x"}`, `{"q":"host=db user=u password=*** dbname=x"}`},
		{`{"q":"the auth failed; key: /usr/lib/x, secret://path, password is required"}`, `{"q":"the auth failed; key: /usr/lib/x, secret://path, password is required"}`},
		{`{"args":["--api-key","a","--host","h","--token", "-v"],"x":["password","b"]}`, `{"args":["--api-key","***","--host","h","--token", "-v"],"x":["password","b"]}`},
		{`{"headers":{"X-K":"a","Accept":"b/c","X-N":1},"X-K":"d"}`, `{"headers":{"X-K":"***","Accept":"b/c","X-N":1},"X-K":"d"}`},
		{`{"text":"pass: \"a b c\" x, <password>p1</password>"}`, `{"text":"pass: \"***\" x, <password>***</password>"}`},
		{`{"text":"-----BEGIN RSA PRIVATE KEY-----\nab\ncd\n-----END RSA PRIVATE KEY-----\ntail"}`, `{"text":"-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\ntail"}`},
		{`{"text":"-----BEGIN OPENSSH PRIVATE KEY-----\nab"}`, `{"text":"-----BEGIN OPENSSH PRIVATE KEY-----***"}`},
		{`{"text":"{\"k\":\"-----BEGIN PRIVATE KEY-----ab\",\"x\":1}"}`, `{"text":"{\"k\":\"-----BEGIN PRIVATE KEY-----***\",\"x\":1}"}`},
		{`{"sha":"0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c","path":"src/main.go"}`, `{"sha":"0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c","path":"src/main.go"}`},
	} {
		got := string(redact([]byte(c.in), known("\x00")))
		if got != c.want {
			t.Errorf("redact(%s)\n got %s\nwant %s", c.in, got, c.want)
		}
		if again := string(redact([]byte(got), known("\x00"))); again != got ||
			!json.Valid([]byte(got)) {
			t.Errorf("a second pass makes %s of %s", again, got)
		}
	}
}

// TestRedactKnownValues: a known value is masked as a whole even if it contains characters that
// end a value after a name. Other bytes stay unchanged.
func TestRedactKnownValues(t *testing.T) {
	const secret = `S3cr,et/V4 lue+"q\u\u00e9<&>;end-of-it'` // with what looks like an escape
	mask := logging.NewMask(secret, "other-known-1", "12345").String
	quoted, _ := json.Marshal(secret)
	nested, _ := json.Marshal(`{"v":` + string(quoted) + `, "w": "\/\u00e9"}`)
	plain, _ := json.Marshal(
		"password=" + secret + " next, token: " + secret + `; "q\u\/` + "\u00e9",
	)
	escapedText := `"\u0070assword=other-kn\u006fwn-1\u0021 and \/ \u00e9 \ud83d\ude00 token: x\u0031y\/\"z"`
	for _, c := range []struct{ in, want string }{
		{`{"a":` + string(quoted) + `}`, `{"a":"***"}`},
		{`{"a":` + string(plain) + `}`, `{"a":"password=*** next, token: ***; \"q\\u\\/é"}`},
		{`{"a":` + string(nested) + `}`, `{"a":"{\"v\":\"***\", \"w\": \"\\/\\u00e9\"}"}`},
		{`{"a":` + escapedText + `}`, `{"a":"\u0070assword=*** and \/ \u00e9 \ud83d\ude00 token: ***\"z"}`},
		{`{"a":"x \/ \u003c other-known-1 \/ \u00E9 \t"}`, `{"a":"x \/ \u003c *** \/ \u00E9 \t"}`},
		{`{"a":"{\"n\":12345,\"pin\":1234,\"b\":\"\\/\"}"}`, `{"a":"{\"n\":\"***\",\"pin\":\"***\",\"b\":\"\\/\"}"}`},
		{`{"a":"say \"hi\" then 12345 \"q\\u is \/ all"}`, `{"a":"say \"hi\" then *** \"q\\u is \/ all"}`},
		{`{"a":"*** other-known-1*** *** other-known-1"}`, `{"a":"*** *** *** ***"}`},
		{"{\"a\":\"\xff other-known-1 \xff\"}", "{\"a\":\"\xff *** \xff\"}"},
		{"{\"a\":\"\\/\xff other-known-1 \xff\\ud800\\u0041\"}", "{\"a\":\"\\/\xff *** \xff\\ud800\\u0041\"}"},
		{`{"a":"\ud800\ud800 \ud83d\ude00 other-known-1\u0021`, `{"a":"\ud800\ud800 \ud83d\ude00 ***\u0021`},
		{`{"a":"{\"credentials\":{\"x\":[\"other-known-1\"]},\"y\":\"other-known-1\"}"}`, `{"a":"{\"credentials\":\"***\",\"y\":\"***\"}"}`},
	} {
		if got := string(redact([]byte(c.in), mask)); got != c.want {
			t.Errorf("redact(%s)\n got %s\nwant %s", c.in, got, c.want)
		}
	}
}

// TestRedactOfRandomSecrets: passwords of all printable characters, in different texts.
func TestRedactOfRandomSecrets(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		var b strings.Builder
		for range 20 {
			b.WriteByte(byte('!' + random.IntN('~'-'!'+1)))
		}
		secret := b.String()
		mask := logging.NewMask(secret).String
		quoted, _ := json.Marshal(secret)
		slashed := strings.ReplaceAll(string(quoted), "/", `\/`)
		for _, text := range []string{
			secret, "password=" + secret + " next", "--token " + secret, "Cookie: " + secret, `{"v":` + string(quoted) + `}`, `{"v":` + slashed + `}`,
			`say "hi" and ` + secret, "key: '" + secret + "'", `{"token":` + slashed + `, "x": 1}`, string(quoted) + secret + ` "`,
		} {
			in, _ := json.Marshal(map[string]string{"a": text})
			got := string(redact(in, mask))
			var out struct{ A string }
			if err := json.Unmarshal([]byte(got), &out); err != nil {
				t.Fatalf("%s became %s: %v", in, got, err)
			}
			for i := range len(secret) - 5 {
				if piece := secret[i : i+6]; strings.Contains(out.A, piece) {
					t.Errorf("%q of %q is in %s", piece, secret, got)
					break
				}
			}
		}
	}
}

// TestRedactTextIsLinear: names within long values are not scanned repeatedly.
func TestRedactTextIsLinear(t *testing.T) {
	for _, part := range []string{"key=", "key=/usr/", "key: ", "--key ", "key", "key=/usr/ ", "Cookie:true ", "a=", "-----BEGIN X-----", "-----BEGIN PRIVATE-----END ", "key='", "<key>", "key\\\\"} {
		text := strings.Repeat(part, payloadLimit/len(part))
		start := time.Now()
		textEdits(text)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%q: %v", part, took)
		}
	}
}

func FuzzPayload(f *testing.F) {
	f.Add([]byte(`{"password":"x","a":[1,"s3cret",{"b":"s\u0033cret"}]}`), "s3cret")
	f.Add([]byte(`{"text":"{\"token\":[\"s3cret\"]}", "12":12}`), "12")
	f.Add([]byte(`{"password":{"a":`), "a")
	f.Add([]byte("\"\xff\\ud800\""), "x")
	f.Fuzz(func(t *testing.T, raw []byte, secret string) {
		if secret == "" || strings.ContainsAny(secret, "*\ufffd") || !utf8.ValidString(secret) ||
			strings.Contains("true false null", secret) {
			return
		}
		before := bytes.Clone(raw)
		v := payload(raw, len(raw), known(secret))
		if !bytes.Equal(raw, before) {
			t.Fatal("changed its argument")
		}
		out, isJSON := v.Any().(json.RawMessage)
		if valid := json.Valid(raw); isJSON != valid && len(raw) <= payloadLimit {
			t.Fatalf("valid %v, logged as JSON %v", valid, isJSON)
		}
		if !isJSON {
			if v.Kind() != slog.KindString || strings.Contains(v.String(), secret) {
				t.Errorf("%q is in %v", secret, v)
			}
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%s became %s", raw, out)
		}
		if hasSecret(out, secret) {
			t.Errorf("%q is in %s", secret, out)
		}
		if got := redact(raw, known("\x00")); !bytes.Contains(got, []byte("***")) &&
			!bytes.Equal(got, raw) {
			t.Errorf("nothing to hide, but %s became %s", raw, got)
		}
	})
}

// hasSecret searches every decoded token of a JSON text.
func hasSecret(raw []byte, secret string) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if v := reflect.ValueOf(token); v.Kind() == reflect.String &&
			strings.Contains(v.String(), secret) {
			return true
		}
	}
}

func BenchmarkRedact(b *testing.B) {
	item := `{"id":12345,"name":"read_file","text":"a line with \"quotes\" and more words","ok":true},`
	raw := []byte("[" + strings.Repeat(item, 64<<10/len(item)) + "0]")
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		redact(raw, known("s3cret"))
	}
}

// An invalid string must not be searched for nested JSON: in an earlier version 64 KiB of such text
// took 12 s.
func TestRedactDeepNesting(t *testing.T) {
	for _, turn := range []string{`[\"`, `[\q\"`, `[\\\"`} {
		text := []byte(`["` + strings.Repeat(turn, payloadLimit/len(turn)))
		for _, raw := range [][]byte{text, quote(string(text)), text[:len(text)-1]} {
			work := 0
			redact(raw, func(s string) string { work += len(s); return s })
			if work > 10*len(raw) {
				t.Errorf("%.20s…: %d bytes were masked for %d", raw, work, len(raw))
			}
		}
	}
}
