package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func merged(o Options, texts ...string) *Snapshot {
	var all []Listing
	for i, text := range texts {
		all = append(all, Listing{Backend: string(rune('a' + i)), Instructions: text})
	}
	return Merge(o, all)
}

func TestInstructions_EachUnderItsName(t *testing.T) {
	s := merged(Options{}, " Use a.\n", "\n", "Use c.")
	if want := "## a\n\nUse a.\n\n## c\n\nUse c."; s.Instructions != want ||
		s.InstructionsCut != 0 {
		t.Errorf("got %q, want %q; cut %d", s.Instructions, want, s.InstructionsCut)
	}
	if s := Merge(Options{}, nil); s.Instructions != "" || string(result(s)) != `{"tools":[]}` {
		t.Errorf("without instructions: %q, %s", s.Instructions, result(s))
	}
}

func TestInstructions_AreBounded(t *testing.T) {
	for n := maxInstructions - 20; n < maxInstructions+20; n++ {
		s := merged(Options{}, strings.Repeat("é", n/2)+strings.Repeat("😀", n-n/2))
		size := utf8.RuneCountInString(s.Instructions)
		if size > maxInstructions || !utf8.ValidString(s.Instructions) {
			t.Fatalf("%d characters became %d", n, size)
		}
		over := n+len("## a\n\n") > maxInstructions
		if over != strings.HasSuffix(s.Instructions, "…") || over != (s.InstructionsCut > 0) ||
			over && size != maxInstructions {
			t.Fatalf("%d characters: %d are left, %d cut", n, size, s.InstructionsCut)
		}
	}
}

// Short texts are not truncated, and long texts share the rest equally.
func TestInstructions_FairShares(t *testing.T) {
	long := strings.Repeat("x", 3000)
	s := merged(Options{}, long, "Short.", long, strings.Repeat("y", 500))
	parts := strings.Split(s.Instructions, "\n\n## ")
	var sizes []int
	for _, part := range parts {
		_, text, _ := strings.Cut(part, "\n\n")
		sizes = append(sizes, utf8.RuneCountInString(text))
	}
	room := maxInstructions - 4*len("## a\n\n") - 3*len("\n\n")
	share := (room - 6 - 500) / 2
	if want := []int{share, 6, share, 500}; !slices.Equal(sizes, want) {
		t.Errorf("got %v, want %v", sizes, want)
	}
	if want := 2 * (3000 - (share - 1)); s.InstructionsCut != want {
		t.Errorf("cut %d, want %d", s.InstructionsCut, want)
	}
}

func TestInstructions_NamesThatDoNotFit(t *testing.T) {
	for _, n := range []int{100, 150, 400, 2000} {
		var all []Listing
		for i := range n {
			all = append(all, Listing{Backend: fmt.Sprintf("backend-%04d", i),
				Instructions: strings.Repeat("x", 100)})
		}
		s := Merge(Options{}, all)
		if size := utf8.RuneCountInString(s.Instructions); size > maxInstructions {
			t.Errorf("%d backends: %d characters", n, size)
		}
		if s.InstructionsCut != 100*n || !strings.Contains(s.Instructions, "backend-0000") {
			t.Errorf("%d backends: cut %d of %s", n, s.InstructionsCut, s.Instructions)
		}
		named := strings.Count(s.Instructions, "backend-")
		if more := fmt.Sprintf(" and %d more", n-named); n != named &&
			!strings.HasSuffix(s.Instructions, more) {
			t.Errorf("%d backends, %d are named: %s", n, named, s.Instructions)
		}
	}
}

// The text of a backend cannot imitate the section of another backend.
func TestInstructions_CannotImitateAnother(t *testing.T) {
	for text, want := range map[string]string{
		"x\n## b\n\nUse c.":               "x\n\\## b\n\nUse c.",
		"## b":                            `\## b`,
		"x\r  # b\u2028\u00a0## c\v## d":  "x\n\\# b\n\\## c\n\\## d",
		"x\n\u200b\u202e## b\n\u200d## c": "x\n\\## b\n\\## c",
		"b\n---\nc\n== \nd":               "b\n\\---\nc\n\\== \nd",
		"a\x00\x1b[31mb\u2066c\u0007":     "a[31mbc",
		"keep\ttabs, - dashes and #tags":  "keep\ttabs, - dashes and #tags",
	} {
		if got := merged(Options{}, text).Instructions; got != "## a\n\n"+want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestInstructions_AreReplaced(t *testing.T) {
	o := Options{BackendInstructions: map[string]string{"a": "", "b": "Mine."}}
	if got := merged(o, "A", "B", "C").Instructions; got != "## b\n\nMine.\n\n## c\n\nC" {
		t.Errorf("got %q", got)
	}
	for _, whole := range []string{"", "# All\n\nof it"} {
		o.Instructions = &whole
		if got := merged(o, "A", "B", "C").Instructions; got != whole {
			t.Errorf("got %q", got)
		}
	}
}
