package osservice

import (
	"os"
	"testing"
	"time"
)

func TestStatusOfAUnit(t *testing.T) {
	s := parseProperties("ActiveState=active\nSubState=running\nMainPID=128\nResult=success\n" +
		"ActiveEnterTimestamp=Tue 2026-12-01 01:16:55.279173 UTC\nUnitFileState=enabled\n" +
		"StatusText=backends: 1 of 2 work; not: a=b (failed)\n")
	at := time.Date(2026, 12, 1, 1, 16, 55, 279173000, time.UTC)
	if !s.Running || s.State != "active (running)" || s.PID != 128 || !s.Enabled ||
		s.Since == nil || !s.Since.Equal(at) || s.Result != "" ||
		s.Text != "backends: 1 of 2 work; not: a=b (failed)" {
		t.Errorf("%+v", s)
	}
	s = parseProperties("ActiveState=failed\nSubState=failed\nMainPID=0\nResult=exit-code\n" +
		"ActiveEnterTimestamp=\nUnitFileState=disabled\nStatusText=\n")
	if s.Running || s.State != "failed (failed)" || s.PID != 0 || s.Enabled || s.Since != nil ||
		s.Result != "exit-code" {
		t.Errorf("%+v", s)
	}
}

func TestProgramOfAProcess(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if path, replaced := ProgramOf(os.Getpid()); path != own || replaced {
		t.Errorf("%s, %t", path, replaced)
	}
	if path, _ := ProgramOf(0); path != "" {
		t.Errorf("process 0: %s", path)
	}
}
