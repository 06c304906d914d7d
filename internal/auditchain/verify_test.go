package auditchain

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// A testFile is a file for verify.
type testFile struct{ name, text string }

// verify returns the findings as "kind file:line", and the result.
func verify(t testing.TB, head string, files ...testFile) (found []string, r ChainResult) {
	v, err := NewChainVerifier(head, func(f Finding) {
		s := fmt.Sprintf("%s %s:%d", f.Kind, f.File, f.Line)
		if f.Lines > 1 {
			s += fmt.Sprintf("+%d", f.Lines-1)
		}
		found = append(found, s)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		v.Read(f.name, strings.NewReader(f.text))
	}
	return found, v.End()
}

// Each kind of change is found at its place.
func TestVerifyFindsChanges(t *testing.T) {
	all := chained(9)
	edited := slices.Clone(all)
	edited[4] = strings.Replace(edited[4], `"id":"5"`, `"id":"6"`, 1)
	destroyed := slices.Clone(all)
	destroyed[4] = "{}\n"
	relinked := slices.Clone(all) // the link of record 5 is changed
	relinked[4] = strings.Replace(relinked[4], `"prev":"`, `"prev":"0`, 1)
	relinked[4] = relinked[4][:len(relinked[4])-4] + "\"}\n"
	renumbered := slices.Clone(all)
	renumbered[4] = strings.Replace(renumbered[4], `"seq":5`, `"seq":7`, 1)
	swapped := slices.Clone(all)
	swapped[4], swapped[5] = swapped[5], swapped[4]
	forged := slices.Clone(all[:4]) // continues record 4 as record 5 does
	l, _ := EndAfter([]byte(strings.Join(all[:4], "")), true)
	fork := string(l.Append(nil, []byte(record(99))))
	forged = append(append(forged, fork), all[4:]...)
	for name, tc := range map[string]struct {
		lines []string
		want  string
	}{
		"unchanged":       {all, "[]"},
		"changed":         {edited, "[changed f:5]"},
		"destroyed":       {destroyed, "[changed f:5]"},
		"changed link":    {relinked, "[changed f:4 changed f:5]"},
		"changed number":  {renumbered, "[changed f:5]"},
		"removed":         {slices.Concat(all[:4], all[5:]), "[removed f:5]"},
		"many removed":    {slices.Concat(all[:2], all[7:]), "[removed f:3]"},
		"first removed":   {all[3:], "[]"}, // as after retention
		"copied":          {slices.Concat(all[:5], all[4:]), "[inserted f:6]"},
		"copied later":    {slices.Concat(all[:7], all[2:4], all[7:]), "[moved f:8+1]"},
		"swapped":         {swapped, "[removed f:5 moved f:6]"},
		"inserted":        {slices.Concat(all[:5], []string{record(0)}, all[5:]), "[inserted f:6]"},
		"inserted linked": {forged, "[inserted f:6]"},
		"appended":        {slices.Concat(all, []string{record(0)}), "[inserted f:10]"},
		"empty line":      {slices.Concat(all[:5], []string{"\n"}, all[5:]), "[inserted f:6]"},
		"all twice":       {slices.Concat(all, all), "[moved f:10+8]"},
		"none":            {nil, "[]"},
	} {
		found, r := verify(t, "", testFile{"f", strings.Join(tc.lines, "")})
		if name == "all twice" { // the first copy of record 1 begins a chain
			tc.want = "[restarted f:10]"
		}
		if fmt.Sprint(found) != tc.want {
			t.Errorf("%s: got %v, want %s", name, found, tc.want)
		}
		if (r.Problems > 0) != (tc.want != "[]") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// Each possible change of one byte is found, except in the last record and in the number and link
// of the first, which nothing covers.
func TestVerifyFindsEachChangedByte(t *testing.T) {
	all := chained(4)
	text := strings.Join(all, "")
	for i := range len(text) - len(all[3]) {
		changed := []byte(text)
		changed[i] ^= 1
		if _, r := verify(t, "", testFile{"f", string(changed)}); r.Problems == 0 {
			t.Errorf("byte %d (%q) can be changed", i, text[i])
		}
	}
}

// The lines of several files are one sequence, whatever the places at which they were rotated.
func TestVerifyFiles(t *testing.T) {
	all := chained(9)
	a, b, c := testFile{"a", strings.Join(all[:3], "")}, testFile{"b", strings.Join(all[3:6], "")},
		testFile{"c", strings.Join(all[6:], "")}
	short := b
	short.text = all[3] + all[4][:20]
	for name, tc := range map[string]struct {
		files []testFile
		want  string
	}{
		"all":            {[]testFile{a, b, c}, "[]"},
		"oldest removed": {[]testFile{b, c}, "[]"},
		"middle removed": {[]testFile{a, c}, "[removed c:1]"},
		"duplicated":     {[]testFile{a, b, b, c}, "[moved b:1+1 inserted b:3]"},
		"swapped":        {[]testFile{a, c, b}, "[removed c:1 moved b:1+2]"},
		"truncated":      {[]testFile{a, short, c}, "[removed c:1]"},
		"truncated last": {[]testFile{a, short}, "[incomplete b:2]"},
		"empty between":  {[]testFile{a, {"e", ""}, b, c}, "[]"},
	} {
		found, _ := verify(t, "", tc.files...)
		if fmt.Sprint(found) != tc.want {
			t.Errorf("%s: got %v, want %s", name, found, tc.want)
		}
	}
}

// A crash in the middle of a line is a note, and the rest is verified, including the lines before
// and the incomplete line itself.
func TestVerifyAfterCrash(t *testing.T) {
	all := chained(3)
	text := strings.Join(all, "") + `{"time":"2026-01-02T0` + "\n"
	l, _ := EndAfter([]byte(text), true)
	text += string(l.Append(nil, []byte(record(4)+record(5))))
	found, r := verify(t, "", testFile{"f", text})
	if fmt.Sprint(found) != "[incomplete f:4]" || r.Problems != 0 || r.Last != 5 {
		t.Errorf("got %v, %+v", found, r)
	}
	for _, change := range []string{`"id":"3"`, `2026-01-02T0` + "\n"} {
		changed := strings.Replace(text, change, "x"+change[1:], 1)
		if _, r := verify(t, "", testFile{"f", changed}); r.Problems == 0 {
			t.Errorf("a change of %s is not found", change)
		}
	}
}

// A chain that was switched on later, and for a time off, is valid from its first link on.
func TestVerifyWithoutChainBefore(t *testing.T) {
	text := record(1) + record(2)
	l, _ := EndAfter([]byte(text), true)
	text += string(l.Append(nil, []byte(record(3))))
	text += record(4)
	l, _ = EndAfter([]byte(text), true)
	text += string(l.Append(nil, []byte(record(5))))
	found, r := verify(t, "", testFile{"f", text})
	if fmt.Sprint(found) != "[not_linked f:4]" || r.Problems != 0 || r.BeforeFirst != 2 ||
		r.First != 1 || r.Last != 2 || r.Unlinked != 3 {
		t.Errorf("got %v, %+v", found, r)
	}
	for i, id := range []string{"2", "3", "4"} {
		changed := strings.Replace(text, `"id":"`+id, `"id":"9`, 1)
		if _, r := verify(t, "", testFile{"f", changed}); r.Problems == 0 {
			t.Errorf("%d: a change of record %s is not found", i, id)
		}
	}
}

// A head that was kept elsewhere shows that the end was removed, or that all was written again.
func TestVerifyHead(t *testing.T) {
	all := chained(5)
	file := func(n int) testFile { return testFile{"f", strings.Join(all[:n], "")} }
	_, r := verify(t, "", file(4))
	for n := range 6 {
		found, _ := verify(t, r.Head, file(n))
		if want := map[bool]string{true: "[]", false: "[head "}[n >= 4]; !strings.HasPrefix(
			fmt.Sprint(found), want) {
			t.Errorf("%d records: %v", n, found)
		}
	}
	var l End
	var forged string
	for i := range 6 {
		forged += string(l.Append(nil, []byte(record(i))))
	}
	if found, _ := verify(t, r.Head, testFile{"f", forged}); fmt.Sprint(found) != "[head f:6]" {
		t.Errorf("forged: %v", found)
	}
	for _, head := range []string{"x", "ab", strings.Repeat("a", 66)} {
		if _, err := NewChainVerifier(head, nil); err == nil {
			t.Errorf("%s is accepted", head)
		}
	}
}

// Lines that are longer than the buffer of the reader are verified like others.
func TestVerifyLongLines(t *testing.T) {
	long := `{"time":"2026-01-02T03:04:05.000000Z","x":"` + strings.Repeat("x", 300<<10) + "\"}\n"
	var l End
	text := string(l.Append(nil, []byte(record(1)+long+record(2)+long)))
	text += long
	l, _ = EndAfter([]byte(text), true)
	text += string(l.Append(nil, []byte(long+record(5))))
	found, r := verify(t, "", testFile{"f", text})
	if fmt.Sprint(found) != "[not_linked f:5]" || r.Last != 6 {
		t.Errorf("got %v, %+v", found, r)
	}
	at := strings.Index(text, long[:100])
	for _, change := range []string{text[:at+1000] + "y" + text[at+1001:], // changed
		strings.Replace(text, record(2)[:40], long[:len(long)-1]+"\n"+record(2)[:40], 1)} {
		if _, r := verify(t, "", testFile{"f", change}); r.Problems == 0 {
			t.Error("a change is not found")
		}
	}
	copied := text + text[at:strings.Index(text, record(2)[:40])] // out of place, not in the chain
	if found, _ := verify(t, "", testFile{"f", copied}); len(found) < 2 {
		t.Errorf("got %v", found)
	}
}

// A file that cannot be read to its end is a problem.
func TestVerifyUnreadableFile(t *testing.T) {
	var found []Finding
	v, _ := NewChainVerifier("", func(f Finding) { found = append(found, f) })
	v.Read("f", io.MultiReader(strings.NewReader(chained(1)[0]),
		iotest.ErrReader(errors.New("broken disk"))))
	if r := v.End(); r.Records != 1 || r.Problems != 1 || len(found) != 1 ||
		found[0].Kind != unreadable || !strings.Contains(found[0].Text, "broken disk") {
		t.Errorf("%+v, %+v", r, found)
	}
}

// Verify reads any bytes. Whatever is inserted into a chain before its last line is found.
func FuzzVerify(f *testing.F) {
	all := chained(4)
	f.Add([]byte(all[0]), uint16(3))
	f.Add([]byte(record(7)), uint16(0))
	f.Add([]byte("\n"), uint16(200))
	f.Add([]byte(`{"a":1,"seq":18446744073709551615,"prev":""}`+"\n"), uint16(len(all[0])))
	f.Add([]byte(`{"a":1,"seq":1,"prev":"`+strings.Repeat("z", 64)+`"}`+"\n"), uint16(100))
	text := strings.Join(all, "")
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		verify(t, "", testFile{"f", string(data)})
		place := int(at) % (len(text) - len(all[3]))
		changed := text[:place] + string(data) + text[place:]
		if changed == text {
			return
		}
		_, r := verify(t, "", testFile{"f", changed})
		if r.Problems == 0 && place > 0 {
			t.Errorf("an insertion of %q at %d is not found", data, place)
		}
	})
}
