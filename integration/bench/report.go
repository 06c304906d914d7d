package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// A report collects the results and prints each result at once.
type report struct {
	w       io.Writer
	Machine machine   `json:"machine"`
	Rows    []figures `json:"rows"`
	Facts   []figure  `json:"facts"`
	Targets []target  `json:"targets"`
}

// A machine describes the machine of a run. Figures of different machines are not comparable.
type machine struct {
	Date   string `json:"date"`
	OS     string `json:"os"`
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Go     string `json:"go"`
	Commit string `json:"commit,omitempty"`
}

// A figure is a single result.
type figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// A target is a bound for a result.
type target struct {
	Name    string  `json:"name"`
	Bound   float64 `json:"bound"`
	Found   float64 `json:"found"`
	Unit    string  `json:"unit"` // "×" = ratio to the reference
	AtLeast bool    `json:"least,omitempty"`
}

func (t target) holds() bool {
	if t.AtLeast {
		return t.Found >= t.Bound
	}
	return t.Found <= t.Bound
}

func thisMachine() machine {
	m := machine{
		Date: time.Now().UTC().Format("2006-01-02"), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: "unknown",
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			m.CPU = strings.TrimSpace(value)
		}
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			if s.Key == "vcs.revision" {
				m.Commit = s.Value
			}
		}
	}
	return m
}

func (r *report) printHeader(comparison string) {
	fmt.Fprintf(r.w, "\n%s\n  %9s %8s  %-12s %10s %10s %9s %9s   %6s %6s %6s %6s  %8s\n",
		comparison,
		"in flight", "bytes", "variant", "p50", "p99", "calls/s", "CPU/call", "p50 ×", "p99 ×",
		"rate ×", "CPU ×", "resident")
}

func (r *report) add(it figures) {
	r.Rows = append(r.Rows, it)
	fmt.Fprintf(r.w, "  %9d %8s  %-12s %10s %10s %9.0f %9s   %6s %6s %6s %6s  %8s\n", it.InFlight,
		bytesText(it.Size), it.Variant,
		timeText(it.P50), timeText(it.P99), it.Rate, timeText(it.CPU),
		ratioText(it.P50Ratio), ratioText(it.P99Ratio), ratioText(it.RateRatio),
		ratioText(it.CPURatio), megabytes(it.RSS))
}

// addFigure adds and prints a figure.
func (r *report) addFigure(name string, value float64, unit string) {
	r.Facts = append(r.Facts, figure{name, value, unit})
	fmt.Fprintf(r.w, "  %-66s %10.4g %s\n", name, value, unit)
}

func (r *report) printHeading(text string) { fmt.Fprintf(r.w, "\n%s\n", text) }

func (r *report) write(file string) error {
	if file == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// find returns the figures of a workload on a variant; zero figures if it was not measured.
func (r *report) find(comparison string, w workload, variant string) figures {
	for _, it := range r.Rows {
		if it.Comparison == comparison && it.InFlight == w.inFlight && it.Size == w.size &&
			it.Variant == variant {
			return it
		}
	}
	return figures{}
}

func (r *report) value(name string) float64 {
	for _, f := range r.Facts {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}

// judge prints each target with a measured figure, and whether the target is met.
func (r *report) judge(targets []target) {
	r.printHeading("targets")
	for _, t := range targets {
		if t.Found == 0 {
			continue
		}
		r.Targets = append(r.Targets, t)
		sign, result := "≤", "met"
		if t.AtLeast {
			sign = "≥"
		}
		if !t.holds() {
			result = "MISSED"
		}
		fmt.Fprintf(r.w, "  %-66s %s %5g  %7.3g %-3s %s\n", t.Name, sign, t.Bound, t.Found, t.Unit,
			result)
	}
}

func bytesText(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}

func timeText(d time.Duration) string {
	switch {
	case d == 0:
		return "–"
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.1f ms", float64(d)/1e6)
}

func ratioText(x float64) string {
	if x == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", x)
}

func megabytes(n int) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
