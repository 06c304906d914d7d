package secrets

import "testing"

func TestIsOpaque(t *testing.T) {
	for _, text := range []string{
		"abcdefgh12345678", "Sekret/Tok+en\"q8f7", "P@ss!word", "hunter22x", "aGhTbZqWmXcP", "Zq8+f7/d6s5a4zzKx90Lm==", "Tr0ub4dor&3",
		"k3y-9f8e7d6c5b", "S3cr3tV4lue", "correct+Horse", "x7Kp-q2Lm-9zRt-4wVb", "e8b1c2d3f4", "abcd1234efgh", "Sek\\Ret12",
	} {
		if !IsOpaque("TOKN", text) {
			t.Errorf("%s is not opaque", text)
		}
		if IsOpaque("SLACK_TEAM_ID", text) {
			t.Errorf("%s is opaque as an ID", text)
		}
	}
	for _, text := range []string{
		"claude-sonnet-4-5", "claude-3-5-sonnet-20241022", "gpt-4o-2024-08-06", "Qwen/Qwen2.5-Coder-32B-Instruct", "eu-west-1",
		"a-long-plain-value", "correct-horse-battery", "production", "Europe/Berlin", "de_DE.UTF-8", "owner/repo-name", "getUserById",
		"/srv/other", "./dist/index.js", "C:\\Users\\Anna", "https://h/p", "postgres://u:p@h/x", "db.example.com:5432", "anna@example.com",
		"--max-old-space-size=4096", "LOG=Debug1", `{"a":"B1c2D3e4"}`, "my secret tok", "123e4567-e89b-12d3-a456-426614174000",
		"2025-11-29T10:00:00Z", "1.2.3-rc.1", "v20241022", "python312", "arn:aws:iam::123456789012:role/reader", "64MiB", "true", "Sekretéé",
		"docs,search,tools", "text/html", "utf8mb4", "node_modules", "read_only", "a1B2",
	} {
		if IsOpaque("X", text) {
			t.Errorf("%s is opaque", text)
		}
	}
}
