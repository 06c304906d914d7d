package tracing

import (
	"context"
	"crypto/tls"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"mcpgateway/internal/config"
	"mcpgateway/internal/secrets"
)

// ExportSettings are the settings of an OTelTracer, from the configuration and the OTEL_*
// variables.
type ExportSettings struct {
	endpoint    string // URL to which traces are posted
	headers     map[string]string
	gzip        bool
	timeout     time.Duration // of one try
	tls         *tls.Config   // nil = the defaults
	sampler     sdktrace.Sampler
	sampling    string // describes the sampler
	queueSize   int    // spans that wait, at most
	batchSize   int    // spans of one request, at most
	delay       time.Duration
	exportLimit time.Duration // time for a batch with all tries
}

// Endpoint returns the URL to which traces are posted. It may contain secrets.
func (s *ExportSettings) Endpoint() string { return s.endpoint }

// Sampling describes which traces are recorded.
func (s *ExportSettings) Sampling() string { return s.sampling }

// Secrets returns the values of the headers, and the secrets in the URL, which must appear in no
// log.
func (s *ExportSettings) Secrets() (all []string) {
	for _, at := range secrets.Find("", s.endpoint) {
		all = append(all, s.endpoint[at.From:at.To])
	}
	for _, value := range s.headers {
		all = append(all, value)
		if _, token, ok := strings.Cut(value, " "); ok { // after a scheme such as Bearer
			all = append(all, token)
		}
	}
	return all
}

// Load returns the settings; nil = no tracing, because neither the configuration nor a variable
// names a receiver, or because a variable turns tracing off. The keys of c, which is valid, have
// precedence over the variables: if c names a receiver, the variables with the endpoint, the
// headers and the protocol of another receiver have no effect. A variable with an invalid value
// causes a warning. The resource attributes are read from the environment of the process.
func Load(c config.OTel, lookup func(string) (string, bool)) (
	s *ExportSettings, warnings []string,
) {
	e := environment{lookup: lookup}
	s = &ExportSettings{headers: c.Headers}
	switch {
	case c.Endpoint == config.PathNone:
		return nil, nil
	case c.Endpoint != "":
		s.endpoint = tracesURL(c.Endpoint)
	default:
		s.endpoint = e.endpoint()
	}
	switch {
	case s.endpoint == "":
		return nil, e.warnings
	case e.isTrue("OTEL_SDK_DISABLED"):
		if c.Endpoint != "" {
			e.warn("OTEL_SDK_DISABLED", "it turns off otel.endpoint")
		}
		return nil, e.warnings
	case c.Endpoint == "" && !e.isSupported():
		return nil, e.warnings
	}
	if c.Endpoint == "" && len(c.Headers) == 0 {
		s.headers = e.headers()
	}
	s.sampler, s.sampling = e.sampler(c.Sample)
	e.transmission(s)
	if err := e.certificates(s); err != nil {
		e.warnings = append(e.warnings, "tracing is off: "+err.Error())
		return nil, e.warnings
	}
	return s, e.warnings
}

// tracesURL returns the URL for traces at a receiver.
func tracesURL(receiver string) string {
	u, err := url.Parse(receiver)
	const path = "/v1/traces"
	if err != nil || strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), path) {
		return receiver
	}
	return u.JoinPath(path).String()
}

// resource returns the attributes of the gateway. Those of OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES have precedence.
func (s *ExportSettings) resource(version string) *resource.Resource {
	r, _ := resource.New(context.Background(),
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "mcp-gateway"),
			attribute.String("service.version", version)),
		resource.WithFromEnv()) // an invalid pair is left out
	return r
}
