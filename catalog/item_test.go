package catalog

import (
	"strings"
	"testing"
)

// TestKinds checks the names of each kind in the protocol.
func TestKinds(t *testing.T) {
	for k, want := range map[Kind]string{
		Tools:     "tools/list tools name tool",
		Prompts:   "prompts/list prompts name prompt",
		Resources: "resources/list resources uri resource",
		Templates: "resources/templates/list resourceTemplates uriTemplate resource template",
	} {
		if got := strings.Join([]string{k.ListMethod(), k.ResultMember(), kinds[k].key, k.String()},
			" "); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		for _, text := range []string{`{}`, `[]`, `{"` + k.ResultMember() + `":{}}`,
			`{"` + strings.ToUpper(k.ResultMember()) + `":[]}`} {
			_, err := ParsePage(k, []byte(text))
			if want := "the result of " + k.ListMethod() + ` has no array "` + k.ResultMember() +
				`"`; err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", text, err, want)
			}
		}
	}
}

// An entry without a valid name or URI is omitted. Members that MCP does not define for its kind
// are not checked.
func TestIssuesOfOtherKinds(t *testing.T) {
	for _, k := range []Kind{Prompts, Resources, Templates} {
		key, upper := kinds[k].key, strings.ToUpper(kinds[k].key)
		longest := strings.Repeat("u", kinds[k].longest)
		for _, tt := range []struct{ entry, of, problem string }{
			{`{}`, "", "it has no " + key},
			{`{"title":"x"}`, "", "it has no " + key},
			{`{"KEY":null}`, "", "it has no " + key},
			{`{"KEY":""}`, "", "it has no " + key},
			{`{"KEY":5}`, "", "it has no " + key},
			{`{"KEY":["x"]}`, "", "it has no " + key},
			{`{"` + upper + `":"x"}`, "", "it has no " + key},
			{`"x"`, "", "it is not an object"},
			{`null`, "", "it is not an object"},
			{`[{"KEY":"x"}]`, "", "it is not an object"},
			{`{"KEY":"x","KEY":"y"}`, "x", "its " + key + " occurs twice"},
			{`{"` + upper + `":"x"}`, "", "it has no " + key},
			{`{"KEY":"` + longest + `u"}`, "", "bytes"},
			{`{"KEY":"x"REST}`, "x", ""},
			{`{"KEY":"x"REST,"inputSchema":1,"inputSchema":2,"x":null,"x":[]}`, "x", ""},
		} {
			name := `,"name":"n"`
			if k.isNamed() {
				name = ""
			}
			entry := strings.NewReplacer("KEY", key, "REST", name).Replace(tt.entry)
			got, err := ParsePage(k, []byte(`{"`+k.ResultMember()+`":[{"`+key+`":"a"`+name+`}, `+
				entry+` ,{"`+key+`":"z"`+name+`}]}`))
			switch {
			case err != nil || len(got.Items) < 2 || got.Items[0].Original != "a" ||
				got.Items[len(got.Items)-1].Original != "z":
				t.Errorf("%.60s: its neighbours are lost: %.200s, %v", entry, issueTexts(got, err),
					err)
			case tt.problem == "" && (len(got.Items) != 3 || len(got.Issues) != 0 ||
				string(got.Items[1].Raw()) != entry || got.Items[1].Original != tt.of):
				t.Errorf("%.60s: %s", entry, issueTexts(got, err))
			case tt.problem != "" && (len(got.Items) != 2 || len(got.Issues) != 1 ||
				got.Issues[0].Repaired || !strings.HasSuffix(got.Issues[0].Problem, tt.problem)):
				t.Errorf("%.60s: %.200s", entry, issueTexts(got, err))
			case tt.problem != "" && tt.of == "" && got.Issues[0].Item != k.ResultMember()+"[1]",
				tt.problem != "" && tt.of != "" && got.Issues[0].Item != tt.of:
				t.Errorf("%.60s: the issue is for %q", entry, got.Issues[0].Item)
			}
		}
		if got := page(t, k, `{"`+k.ResultMember()+`":[{"`+key+`":"`+longest+
			`"}]}`); len(got.Items) != 1 {
			t.Errorf("%v: rejected at the bound: %v", k, got.Issues)
		}
	}
}

// No member is lost or changed, whether the gateway knows it or not.
func TestFIDELITY_05_OfOtherKinds(t *testing.T) {
	const rest = `"title":"<b> & \u003c","description":"é\n","arguments":[{"name":"inner","required":true}],"size":9007199254740993,` +
		`"annotations":{"priority":0.10,"uri":"inner"},"icons":[{"src":"data:,"}],"_meta":{"a/b":1E+40},"x-unknown": [ 1 , 2 ]}`
	for _, k := range []Kind{Prompts, Resources, Templates} {
		raw := `{"` + kinds[k].key + `":"\u0078:\/t",` + rest
		if !k.isNamed() {
			raw = `{"name":"n",` + raw[1:]
		}
		got := page(t, k, `{"`+k.ResultMember()+`":[`+raw+`],"_meta":{}}`)
		l := Listing{Backend: "a"}
		l.Items[k] = got.Items
		o := Options{Prefix: PrefixNever}
		if k == Prompts {
			raw = strings.Replace(raw, `"\u0078:\/t"`, `"x__t"`, 1)
		}
		if list, _ := Merge(o, []Listing{l}).Page(k, nil); string(list) != `{"`+k.ResultMember()+
			`":[`+raw+`]}` {
			t.Errorf("listed\n%s\nwant\n%s", list, raw)
		}
		if again := page(t, k, string(MarshalList(k, got.Items))); issueTexts(again,
			nil) != issueTexts(got, nil) {
			t.Errorf("read back\n%s", issueTexts(again, nil))
		}
		if text := got.Items[0].Description(); text != "é\n" {
			t.Errorf("described as %q", text)
		}
	}
}
