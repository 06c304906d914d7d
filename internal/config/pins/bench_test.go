package pins

import (
	"fmt"
	"strings"
	"testing"
)

// benchmarkLock returns a lock with this number of tools of about 2 KB.
func benchmarkLock(tools int) (*Lock, []byte) {
	var properties []string
	for i := range 8 {
		properties = append(properties, fmt.Sprintf(`"property%d":{"type":"string","description":%q}`,
			i, strings.Repeat("some text ", 10)))
	}
	tool := []byte(`{"name":"t","description":"` + strings.Repeat(`A line of text.\n`, 20) +
		`","inputSchema":{"type":"object","properties":{` + strings.Join(properties, ",") + `}}}`)
	l, all := new(Lock), make(Tools)
	for i := range tools {
		all[fmt.Sprint("tool", i)] = New(tool)
	}
	l.Approve("b", all, nil)
	return l, tool
}

// The time to read a lock file, which is a part of the start of a gateway.
func BenchmarkParse(b *testing.B) {
	for _, tools := range []int{50, 400} {
		b.Run(fmt.Sprint(tools), func(b *testing.B) {
			l, _ := benchmarkLock(tools)
			text, err := l.encode(maxFile)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if _, err := parse("gateway.lock", text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The time to compare one listed tool.
func BenchmarkDigestOf(b *testing.B) {
	_, tool := benchmarkLock(0)
	b.SetBytes(int64(len(tool)))
	for b.Loop() {
		DigestOf(tool)
	}
}
