package tracing_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpgateway/internal/config"
	"mcpgateway/internal/mcptest/otlptest"
	"mcpgateway/internal/tracing"
)

// The keys of the configuration have precedence over the variables, and the variables of traces
// over those of all signals.
func TestReceiverOfSettings(t *testing.T) {
	type env = map[string]string
	for _, c := range []struct {
		name string
		keys config.OTel
		env  env
		want string // "" = tracing is off
	}{
		{"nothing", config.OTel{}, nil, ""},
		{"headers and sample only", config.OTel{Sample: "1", Headers: env{"a": "b"}}, nil, ""},
		{"key", config.OTel{Endpoint: "http://a:4318"}, nil, "http://a:4318/v1/traces"},
		{"key with a path", config.OTel{Endpoint: "https://a/otlp/"}, nil,
			"https://a/otlp/v1/traces"},
		{"key with the whole path", config.OTel{Endpoint: "https://a/x/v1/traces"}, nil,
			"https://a/x/v1/traces"},
		{"variable", config.OTel{}, env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b:4318/"},
			"http://b:4318/v1/traces"},
		{"variable of traces, as it is", config.OTel{}, env{
			"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x"},
			"http://c/x"},
		{"key and variables", config.OTel{Endpoint: "http://a"}, env{
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
			"OTEL_TRACES_EXPORTER": "none"}, "http://a/v1/traces"},
		{"none", config.OTel{Endpoint: "none"}, env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b"}, ""},
		{"an empty variable", config.OTel{}, env{"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, ""},
		{"no exporter", config.OTel{}, env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b",
			"OTEL_TRACES_EXPORTER": "none"}, ""},
		{"disabled", config.OTel{}, env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b",
			"OTEL_SDK_DISABLED": "TRUE"}, ""},
		{"not disabled", config.OTel{}, env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b",
			"OTEL_SDK_DISABLED": "1"}, "http://b/v1/traces"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, warnings := tracing.Load(c.keys, variables(c.env))
			got := ""
			if s != nil {
				got = s.Endpoint()
			}
			if got != c.want || len(warnings) > 0 {
				t.Errorf("got %q, want %q; warnings %q", got, c.want, warnings)
			}
		})
	}
}

// A variable that the gateway does not support is named in a warning, which says what happens.
func TestWarningsOfVariables(t *testing.T) {
	for _, c := range []struct {
		name, value, want string
		off               bool
	}{
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", `tracing is off: the gateway supports http/protobuf`,
			true},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "set otel.endpoint", true},
		{"OTEL_TRACES_EXPORTER", "zipkin", `supports otlp and none, not "zipkin"`, true},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost:4317", "must be an http or https URL", true},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", "/none.pem", "no such file", true},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY", "/none.pem", "need each other", true},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=1,s3cret", "name=value", false},
		{"OTEL_EXPORTER_OTLP_HEADERS", "content-type=s3cret", "name=value", false},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=%zs3cret", "name=value", false},
		{"OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "must be gzip or none", false},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "must be a whole number from 1 to", false},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "-1", "2048 is used", false},
		{"OTEL_BSP_MAX_QUEUE_SIZE", "1000000000", "1 to 65536", false},
		{"OTEL_TRACES_SAMPLER", "jaeger_remote", "is not supported", false},
		{"OTEL_TRACES_SAMPLER_ARG", "2", "from 0 to 1", false},
		{"OTEL_TRACES_SAMPLER_ARG", "NaN", "from 0 to 1", false},
	} {
		t.Run(c.name+"="+c.value, func(t *testing.T) {
			env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b", c.name: c.value}
			if c.name == "OTEL_TRACES_SAMPLER_ARG" {
				env["OTEL_TRACES_SAMPLER"] = "parentbased_traceidratio"
			}
			s, warnings := tracing.Load(config.OTel{}, variables(env))
			text := strings.Join(warnings, "\n")
			if (s == nil) != c.off || len(warnings) != 1 || !strings.Contains(text, c.want) ||
				c.value != "/none.pem" && !strings.Contains(text, c.name) ||
				strings.Contains(text, "s3cret") {
				t.Errorf("off %v, warnings %q", s == nil, warnings)
			}
		})
	}
}

func TestSampling(t *testing.T) {
	for _, c := range []struct{ key, sampler, argument, want string }{
		{"", "", "", "100 %, or as the client decides"},
		{"", "", "0.5", "100 %, or as the client decides"},
		{"0.01", "always_on", "", "1 %, or as the client decides"},
		{"25%", "", "", "25 %, or as the client decides"},
		{"0", "", "", "0 %, or as the client decides"},
		{"", "always_on", "", "100 %"}, {"", "always_off", "", "0 %"},
		{"", "traceidratio", "0.25", "25 %"}, {"", "traceidratio", "", "100 %"},
		{"", "parentbased_always_on", "", "100 %, or as the client decides"},
		{"", "parentbased_always_off", "", "0 %, or as the client decides"},
		{"", "ParentBased_TraceIdRatio", "0.1", "10 %, or as the client decides"},
	} {
		s, warnings := tracing.Load(config.OTel{Endpoint: receiverURL, Sample: c.key}, variables(
			map[string]string{"OTEL_TRACES_SAMPLER": c.sampler, "OTEL_TRACES_SAMPLER_ARG": c.argument}))
		if s == nil || s.Sampling() != c.want || len(warnings) > 0 {
			t.Errorf("%v: got %q, %q", c, s.Sampling(), warnings)
		}
	}
}

// One of a hundred traces is sent with otel.sample: 1%.
func TestSampleRatio(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r otlptest.Receiver
		s := newSender(t, config.OTel{Endpoint: receiverURL, Sample: "1%"}, nil,
			otlptest.Pipe(t, &r))
		s.trace(20_000)
		time.Sleep(6 * time.Second)
		if n := len(r.Spans(t)) / 2; n < 100 || n > 300 {
			t.Errorf("%d of 20000 traces were sent", n)
		}
	})
}

// The headers in the variables are for the receiver in the variables, and are secret, like a token
// in a URL.
func TestHeadersOfVariables(t *testing.T) {
	env := map[string]string{"OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20s3cret,b=2%2C ",
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://b/?token=t0ken-abcdefgh"}
	s, _ := tracing.Load(config.OTel{}, variables(env))
	secrets := s.Secrets()
	slices.Sort(secrets)
	for _, want := range []string{"Bearer s3cret", "s3cret", "2,", "t0ken-abcdefgh"} {
		if !slices.Contains(secrets, want) {
			t.Errorf("%q is not among %q", want, secrets)
		}
	}
	for name, c := range map[string]config.OTel{
		"another receiver": {Endpoint: "http://a"},
		"other headers":    {Headers: map[string]string{"c": "3"}},
	} {
		if s, _ := tracing.Load(c, variables(env)); slices.Contains(s.Secrets(), "s3cret") {
			t.Errorf("%s: the secrets are %q", name, s.Secrets())
		}
	}
}

// The resource has the attributes of the variables.
func TestResourceOfVariables(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "tools")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=7")
	synctest.Test(t, func(t *testing.T) {
		var r otlptest.Receiver
		s := newSender(t, config.OTel{Endpoint: receiverURL}, nil, otlptest.Pipe(t, &r))
		s.trace(1)
		s.stop()
		got := r.Spans(t)[0].Resource
		if got["service.name"] != "tools" || got["service.version"] != "7" ||
			got["deployment.environment.name"] != "test" || got["telemetry.sdk.language"] != "go" {
			t.Errorf("the resource is %v", got)
		}
	})
}

// A receiver with a certificate of its own is trusted if OTEL_EXPORTER_OTLP_CERTIFICATE names it.
func TestCertificate(t *testing.T) {
	var r otlptest.Receiver
	server := httptest.NewTLSServer(http.HandlerFunc(r.ServeHTTP))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s := newSender(t, config.OTel{Endpoint: server.URL},
		map[string]string{"OTEL_EXPORTER_OTLP_CERTIFICATE": file}, nil)
	s.trace(1)
	s.stop()
	if n := len(r.Spans(t)); n != 2 {
		t.Errorf("%d spans; the log has %q", n, s.log.Warnings())
	}
}
