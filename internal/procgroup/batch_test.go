package procgroup

import "testing"

func TestBatchLine(t *testing.T) {
	const shell, begin = `C:\s\cmd.exe`, `"C:\s\cmd.exe" /d /e:on /v:off /c ""C:\a b\npx.cmd"`
	for arg, want := range map[string]string{
		"plain":        `"plain"`,
		"":             `""`,
		"two words":    `"two words"`,
		`"&calc.exe`:   `"""&calc.exe"`,
		`a\"&calc`:     `"a\\""&calc"`,
		`end\`:         `"end\\"`,
		"%PATH%":       `"%%cd:~,%PATH%%cd:~,%"`,
		"!PATH!":       `"!PATH!"`,
		"a^b|c>d<e(f)": `"a^b|c>d<e(f)"`,
	} {
		got, err := batchLine(shell, `C:\a b\npx.cmd`, []string{arg})
		if err != nil || got != begin+" "+want+`"` {
			t.Errorf("%q: %s, %v, want %s", arg, got, err, want)
		}
	}
	for _, arg := range []string{"a\nb", "a\rb", "a\x00b"} {
		if got, err := batchLine(shell, "x.cmd", []string{arg}); err == nil {
			t.Errorf("%q: %s", arg, got)
		}
	}
	for _, script := range []string{`a".cmd`, `%x%.cmd`} {
		if got, err := batchLine(shell, script, nil); err == nil {
			t.Errorf("%q: %s", script, got)
		}
	}
}

func TestIsBatch(t *testing.T) {
	for path, want := range map[string]bool{
		`C:\npx.cmd`: true, `C:\x.BAT`: true, `C:\x.cmd. .`: true, `C:\x.exe`: false,
		`C:\cmd`: false,
	} {
		if isBatch(path) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
}
