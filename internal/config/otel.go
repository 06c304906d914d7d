package config

import (
	"strconv"
	"strings"
)

// OTel configures the traces of requests (OpenTelemetry). The OTEL_* variables have the same
// settings, and others; see package tracing.
type OTel struct {
	// Endpoint is the http or https URL of a receiver of OTLP over HTTP; "" = the one in the
	// variables, PathNone = no traces.
	Endpoint string            `koanf:"endpoint"`
	Headers  map[string]string `koanf:"headers" json:",omitempty"` // of each request to the receiver
	// Sample is the share of traces that are recorded if the client does not decide it, as accepted
	// by SampleRatio; "" = as in the variables.
	Sample string `koanf:"sample"`
}

// SampleRatio returns the number from 0 to 1 that a value of otel.sample stands for, such as 0.01
// or 1%. It returns false for other text.
func SampleRatio(text string) (ratio float64, ok bool) {
	number, percent := strings.CutSuffix(text, "%")
	ratio, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		ratio /= 100
	}
	return ratio, err == nil && ratio >= 0 && ratio <= 1
}

// IsHeader reports whether a header with this name and value can be sent to a receiver of traces.
func IsHeader(name, value string) bool {
	return headerName().MatchString(name) && !IsReservedHeader(name) &&
		!strings.EqualFold(name, "Host") && !strings.ContainsAny(value, "\r\n\x00")
}
