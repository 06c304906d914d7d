package config

import (
	"errors"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// convert parses text as the value of a key of type t. Its errors describe the expected form and
// do not contain the text.
func convert(text string, t reflect.Type) (any, error) {
	switch t {
	case durationType:
		return parseDuration(text)
	case sizeType:
		return parseSize(text)
	case timeType:
		return parseTime(text)
	}
	switch t.Kind() {
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, errors.New("must be " + expectedForm(t))
		}
		return n, nil
	case reflect.Bool:
		switch {
		case strings.EqualFold(text, "true"):
			return true, nil
		case strings.EqualFold(text, "false"):
			return false, nil
		}
		return nil, errors.New("must be " + expectedForm(t))
	}
	return text, nil
}

// expectedForm describes how a value of type t is written.
func expectedForm(t reflect.Type) string {
	switch t {
	case durationType:
		return "a duration like 3s or 2m"
	case sizeType:
		return "a size like 64MiB"
	case timeType:
		return "a date like 2027-01-31, or a time like 2027-01-31T18:00:00Z"
	case tokenType:
		return "a token, or a mapping with the keys token, name, profile, expires and rate"
	case rateType:
		return "a limit like 600/m, or a mapping with the keys limit and burst"
	case keepType:
		return "a number of files, or a mapping with the keys files, age and size"
	}
	switch t.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	}
	return "a string"
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errors.New("must be " + expectedForm(durationType))
	case d < 0:
		return 0, errors.New("must be zero or more")
	}
	return d, nil
}

// units are the units of sizes. A longer suffix comes before a shorter one.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

func parseSize(text string) (int64, error) {
	number, unit := text, int64(1)
	for _, u := range units {
		if before, ok := strings.CutSuffix(text, u.suffix); ok {
			number, unit = strings.TrimSpace(before), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil:
		return 0, errors.New("must be " + expectedForm(sizeType))
	case n < 0:
		return 0, errors.New("must be zero or more")
	case n > math.MaxInt64/unit:
		return 0, errors.New("must be less than 8 EiB")
	}
	return n * unit, nil
}
