// Package metrics makes the metrics of a gateway for Prometheus. It counts nothing itself: at each
// scrape it converts the counters of package activity and the status of the gateway.
//
// The numbers of series are bounded by those of activity.Entries and of the configured backends.
package metrics

import (
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"mcpgateway/internal/activity"
	"mcpgateway/internal/adminapi"
)

// A StateSource knows what the metrics show. Its methods do not block.
type StateSource interface {
	Status() adminapi.GatewayStatus
	Entries() map[activity.EntryKey]activity.EntryCounters
	// States are all states that a backend can have.
	States() []string
	// Commit is the commit of the binary, "" = unknown.
	Commit() string
}

const (
	// maxScrapes bounds the scrapes that are served at the same time.
	maxScrapes = 4
	// scrapeTimeout bounds the time of a scrape.
	scrapeTimeout = 10 * time.Second
)

// NewHandler returns the handler of /metrics. It allocates nothing until the first scrape. It
// refuses more than maxScrapes concurrent requests with the status 503.
func NewHandler(s StateSource) http.Handler {
	handler := sync.OnceValue(func() http.Handler {
		registry := prometheus.NewRegistry()
		registry.MustRegister(
			collector{s},
			collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		)
		return promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
			// a wrong metric costs no other
			ErrorHandling: promhttp.ContinueOnError,
		})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler().ServeHTTP(w, r)
	})
}

// A collector converts the state of a gateway to metrics. Prometheus calls it at each scrape, also
// concurrently.
type collector struct{ StateSource }

// Describe implements prometheus.Collector. It describes nothing: which metrics there are depends
// on the backends and calls.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	s := c.Status()
	to := metricSender{ch}
	to.gauge(buildInfo, 1, s.Gateway.Version, c.Commit(), runtime.Version())
	c.collectCalls(to)
	for i := range s.Backends {
		c.collectBackend(to, &s.Backends[i])
	}
	collectSessions(to, s.Sessions)
	collectAudit(to, &s.Audit)
	to.gauge(configurationValid, boolean(s.Configuration.Problem == ""))
	to.gauge(configurationDiffers, boolean(s.Configuration.Differs))
}

func (c collector) collectCalls(to metricSender) {
	for key, e := range c.Entries() {
		labels := []string{key.Backend, key.Method, key.Name}
		var failed uint64
		for i, n := range e.ByOutcome {
			outcome := activity.Outcomes[i]
			if n > 0 {
				to.counter(calls, float64(n), append(labels[:3:3], string(outcome))...)
			}
			if activity.IsError(outcome) {
				failed += n
			}
		}
		to.counter(callErrors, float64(failed), labels...)
		to.histogram(callDuration, &e.Durations, durationBounds, 1e6, labels...)
		to.histogram(argumentSize, &e.BytesIn, sizeBounds, 1, labels...)
		to.histogram(resultSize, &e.BytesOut, sizeBounds, 1, labels...)
	}
}

func (c collector) collectBackend(to metricSender, b *adminapi.BackendStatus) {
	for _, state := range c.States() {
		to.gauge(backendState, boolean(state == b.State), b.Name, state)
	}
	to.gauge(backendHealthy, boolean(b.Healthy), b.Name)
	if !b.Since.IsZero() {
		to.gauge(backendStateSince, float64(b.Since.UnixMilli())/1000, b.Name)
	}
	to.counter(backendRestarts, float64(b.Restarts), b.Name)
	to.gauge(backendConnections, float64(b.Connections), b.Name)
	to.gauge(callsInFlight, float64(b.Calls.InFlight), b.Name)
	to.gauge(callsQueued, float64(b.Queued), b.Name)
	for _, list := range []struct {
		kind string
		n    int
	}{
		{"tools", b.Lists.Tools}, {"prompts", b.Lists.Prompts},
		{"resources", b.Lists.Resources}, {"templates", b.Lists.Templates},
	} {
		to.gauge(catalogEntries, float64(list.n), b.Name, list.kind)
	}
}

func collectSessions(to metricSender, all []adminapi.SessionStatus) {
	type kind struct{ transport, generation string }
	// These are always present, so that an alert can see 0.
	counts := map[kind]int{{"stdio", "legacy"}: 0, {"streamable HTTP", "legacy"}: 0,
		{"streamable HTTP", "modern"}: 0}
	for _, s := range all {
		generation := "legacy"
		if s.Stateless {
			generation = "modern"
		}
		counts[kind{s.Transport, generation}]++
	}
	for k, n := range counts {
		to.gauge(sessions, float64(n), k.transport, k.generation)
	}
}

func collectAudit(to metricSender, a *adminapi.AuditStatus) {
	to.counter(auditWritten, float64(a.Written))
	to.counter(auditLost, float64(a.Lost))
	to.gauge(auditQueued, float64(a.Queued))
	to.gauge(auditLag, a.Lag/1000)
	if f := a.File; f != nil {
		to.gauge(auditFileWorks, boolean(f.Problem == nil))
		to.gauge(auditFileSize, float64(f.Size+f.FormerSize))
	}
}

// A metricSender makes metrics and sends them.
type metricSender struct{ ch chan<- prometheus.Metric }

func (s metricSender) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.send(prometheus.NewConstMetric(d, prometheus.GaugeValue, value, valid(labels)...))
}

func (s metricSender) counter(d *prometheus.Desc, value float64, labels ...string) {
	s.send(prometheus.NewConstMetric(d, prometheus.CounterValue, value, valid(labels)...))
}

// histogram sends h with these bounds. The values and bounds of h are divided by scale.
func (s metricSender) histogram(d *prometheus.Desc, h *activity.Histogram, bounds []uint64,
	scale float64, labels ...string) {
	buckets := make(map[float64]uint64, len(bounds))
	for _, bound := range bounds {
		buckets[float64(bound)/scale] = h.CountBelow(bound)
	}
	s.send(prometheus.NewConstHistogram(d, h.Count, float64(h.Sum)/scale, buckets,
		valid(labels)...))
}

// send sends a metric. The error is about the metric of one entry, so it costs no other.
func (s metricSender) send(m prometheus.Metric, err error) {
	if err == nil {
		s.ch <- m
	}
}

// valid replaces invalid UTF-8 in labels, which Prometheus refuses.
func valid(labels []string) []string {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\ufffd")
	}
	return labels
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
