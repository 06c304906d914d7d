package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// auditTime returns the time that the text of a flag means; zero for "". Times of day and dates are
// local.
func auditTime(flag, text string, now time.Time) (time.Time, error) {
	t, err := parseTime(strings.TrimSpace(text), now)
	if err != nil {
		return t, usageError{fmt.Errorf("%s %s: it is not a time", flag, strconv.Quote(text)),
			"use a duration (2h, 3d), a time of day (14:30), a date (2026-11-29, or " +
				"2026-11-29T14:30), now, today or yesterday"}
	}
	return t, nil
}

func parseTime(text string, now time.Time) (time.Time, error) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	switch text {
	case "":
		return time.Time{}, nil
	case "now":
		return now, nil
	case "today":
		return midnight, nil
	case "yesterday":
		return midnight.AddDate(0, 0, -1), nil
	}
	if age, err := parseAge(text); err == nil {
		return now.Add(-age), nil
	}
	for _, form := range []string{"15:04", "15:04:05"} {
		if at, err := time.Parse(form, text); err == nil {
			t := time.Date(now.Year(), now.Month(), now.Day(), at.Hour(), at.Minute(), at.Second(),
				0, now.Location())
			if t.After(now) { // the last one
				t = t.AddDate(0, 0, -1)
			}
			return t, nil
		}
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02", "2006-01-02 15:04",
		"2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("not a time")
}

// parseAge parses a duration such as 2h, 3d or 1d12h.
func parseAge(text string) (time.Duration, error) {
	var days time.Duration
	if number, rest, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return 0, err
		}
		days = time.Duration(n) * 24 * time.Hour
		if text = rest; text == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("negative")
	}
	return days + d, err
}
