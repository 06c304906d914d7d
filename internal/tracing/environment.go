package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"mcpgateway/internal/config"
)

// An environment reads the OTEL_* variables. A variable that is empty counts as not set.
type environment struct {
	lookup   func(string) (string, bool)
	warnings []string
}

func (e *environment) warn(name, problem string) {
	e.warnings = append(e.warnings, name+": "+problem)
}

// get returns the first of the variables that is not empty, and its name; "" = there is none.
func (e *environment) get(names ...string) (value, name string) {
	for _, name := range names {
		if value, _ := e.lookup(name); strings.TrimSpace(value) != "" {
			return strings.TrimSpace(value), name
		}
	}
	return "", ""
}

// ofTraces returns the variable of an exporter, for which that of traces has precedence.
func (e *environment) ofTraces(key string) (value, name string) {
	return e.get("OTEL_EXPORTER_OTLP_TRACES_"+key, "OTEL_EXPORTER_OTLP_"+key)
}

func (e *environment) isTrue(name string) bool {
	value, _ := e.get(name)
	return strings.EqualFold(value, "true")
}

func (e *environment) endpoint() string {
	value, name := e.ofTraces("ENDPOINT")
	u, err := url.Parse(value)
	switch {
	case value == "":
		return ""
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		e.warn(name, "must be an http or https URL: tracing is off")
		return ""
	case name == "OTEL_EXPORTER_OTLP_ENDPOINT":
		return tracesURL(value)
	}
	return value
}

// isSupported reports whether the variables ask for an exporter that the gateway has.
func (e *environment) isSupported() bool {
	protocol, name := e.ofTraces("PROTOCOL")
	if protocol != "" && protocol != "http/protobuf" {
		e.warn(name, fmt.Sprintf("tracing is off: the gateway supports http/protobuf only, not "+
			"%.40q; set otel.endpoint in the configuration to the receiver's address for OTLP over "+
			"HTTP, or OTEL_EXPORTER_OTLP_TRACES_PROTOCOL to http/protobuf", protocol))
		return false
	}
	exporter, name := e.get("OTEL_TRACES_EXPORTER")
	if exporter != "" && exporter != "otlp" && exporter != "none" {
		e.warn(name, fmt.Sprintf("tracing is off: the gateway supports otlp and none, not %.40q",
			exporter))
	}
	return exporter == "" || exporter == "otlp"
}

// headers returns the headers in the variables. Their values are percent-encoded.
func (e *environment) headers() map[string]string {
	value, name := e.ofTraces("HEADERS")
	all := make(map[string]string)
	for pair := range strings.SplitSeq(value, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, text, ok := strings.Cut(pair, "=")
		text, err := url.PathUnescape(strings.TrimSpace(text))
		key = strings.TrimSpace(key)
		if !ok || err != nil || !config.IsHeader(key, text) {
			e.warn(name, "has the form name=value,name=value, and values are percent-encoded; "+
				"a part of it has another form and is not used")
			continue
		}
		all[key] = text
	}
	return all
}

// sampler returns the sampler for the value of otel.sample, or for the variables if that is "".
func (e *environment) sampler(sample string) (s sdktrace.Sampler, description string) {
	percent := func(ratio float64) string {
		return strconv.FormatFloat(ratio*100, 'g', 6, 64) + " %"
	}
	parentBased := func(ratio float64) (sdktrace.Sampler, string) {
		return sdktrace.ParentBased(sdktrace.TraceIDRatioBased(ratio)),
			percent(ratio) + ", or as the client decides"
	}
	if ratio, ok := config.SampleRatio(sample); ok {
		return parentBased(ratio)
	}
	which, name := e.get("OTEL_TRACES_SAMPLER")
	switch strings.ToLower(which) {
	case "", "parentbased_always_on":
		return parentBased(1)
	case "parentbased_traceidratio":
		return parentBased(e.samplerRatio())
	case "parentbased_always_off":
		return parentBased(0)
	case "traceidratio":
		ratio := e.samplerRatio()
		return sdktrace.TraceIDRatioBased(ratio), percent(ratio)
	case "always_on":
		return sdktrace.AlwaysSample(), percent(1)
	case "always_off":
		return sdktrace.NeverSample(), percent(0)
	}
	e.warn(name, fmt.Sprintf("%.40q is not supported; all traces are recorded, or as the client "+
		"decides", which))
	return parentBased(1)
}

// samplerRatio returns the share in the argument of the sampler.
func (e *environment) samplerRatio() float64 {
	value, name := e.get("OTEL_TRACES_SAMPLER_ARG")
	ratio, err := strconv.ParseFloat(value, 64)
	switch {
	case value == "":
		return 1
	case err != nil, !(ratio >= 0 && ratio <= 1):
		e.warn(name, "must be a number from 0 to 1; all traces are recorded")
		return 1
	}
	return ratio
}

// Bounds of the queue of spans. The defaults are those of the specification.
const (
	maxQueuedSpans = 65_536
	maxBatchSpans  = 8192
)

// transmission reads how and when spans are sent.
func (e *environment) transmission(s *ExportSettings) {
	switch value, name := e.ofTraces("COMPRESSION"); value {
	case "", "none":
	case "gzip":
		s.gzip = true
	default:
		e.warn(name, "must be gzip or none; traces are not compressed")
	}
	s.timeout = e.milliseconds(10_000, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
		"OTEL_EXPORTER_OTLP_TIMEOUT")
	s.delay = e.milliseconds(5000, "OTEL_BSP_SCHEDULE_DELAY")
	s.exportLimit = e.milliseconds(30_000, "OTEL_BSP_EXPORT_TIMEOUT")
	s.queueSize = e.number(2048, maxQueuedSpans, "OTEL_BSP_MAX_QUEUE_SIZE")
	s.batchSize = min(s.queueSize, e.number(512, maxBatchSpans, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"))
}

// milliseconds returns a time of at most a day.
func (e *environment) milliseconds(byDefault int, names ...string) time.Duration {
	return time.Duration(e.number(byDefault, 86_400_000, names...)) * time.Millisecond
}

// number returns a number from 1 to most.
func (e *environment) number(byDefault, most int, names ...string) int {
	value, name := e.get(names...)
	if value == "" {
		return byDefault
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		e.warn(name, fmt.Sprintf("must be a whole number from 1 to %d; %d is used", most, byDefault))
		return byDefault
	}
	return n
}

// certificates reads the files with the trusted authorities and with the client certificate.
func (e *environment) certificates(s *ExportSettings) error {
	authorities, name := e.ofTraces("CERTIFICATE")
	cert, certName := e.ofTraces("CLIENT_CERTIFICATE")
	key, _ := e.ofTraces("CLIENT_KEY")
	if authorities == "" && cert == "" && key == "" {
		return nil
	}
	s.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if authorities != "" {
		text, err := os.ReadFile(authorities)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.tls.RootCAs = x509.NewCertPool()
		if !s.tls.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("%s: %s contains no certificate in PEM form", name, authorities)
		}
	}
	switch {
	case cert == "" && key == "":
		return nil
	case cert == "" || key == "":
		return errors.New("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and " +
			"OTEL_EXPORTER_OTLP_CLIENT_KEY need each other")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s: %w", certName, err)
	}
	s.tls.Certificates = []tls.Certificate{pair}
	return nil
}
