package edge

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
)

// outcome says how a request has ended, for the metrics.
type outcome int

const (
	outcomeNone outcome = iota
	outcomeProxied
	outcomeRedeemed
	outcomeSignIn
	outcomeRefused
	outcomeUnknown
	outcomeLimited
	outcomeUnavailable
	outcomeFailed
	outcomeEnded
	outcomeGone
	outcomes
)

var outcomeNames = [outcomes]string{
	"none", "proxied", "redeemed", "sign_in", "refused", "unknown_host", "limited", "unavailable", "failed", "ended", "gone",
}

var visibilityNames = [3]string{"unknown", "workspace", "public"}

func outcomeOf(code entity.Code) outcome {
	switch code {
	case entity.NotFound:
		return outcomeUnknown
	case entity.RateLimited:
		return outcomeLimited
	case entity.Unavailable:
		return outcomeUnavailable
	case entity.Internal:
		return outcomeFailed
	default:
		return outcomeRefused
	}
}

// metrics counts requests by outcome, class of status and visibility. No metric has the app or the host as a label, because the number of
// series would be unbounded.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	cached   *prometheus.CounterVec
	inFlight prometheus.Gauge
	upgrades prometheus.Gauge
	wakes    prometheus.Counter

	// counters has the series of requests and durations has the series of duration, so that a request looks up no labels.
	counters  [outcomes][3][6]prometheus.Counter
	durations [3]prometheus.Observer
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	const space = "atelier_edge_"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: space + "requests_total", Help: "Requests for the hosts of apps, by what became of them, the class of the status and the visibility of the app."},
			[]string{"outcome", "status", "visibility"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: space + "request_duration_seconds", Help: "Time from the head of a request for an app to the end of its response, without connections that were upgraded.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 3, 12)}, []string{"visibility"}),
		cached: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: space + "lookups_total", Help: "Look-ups of hosts and visits: memory is answered by the cache, asked by entities."},
			[]string{"kind", "result"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: space + "requests_in_flight", Help: "Requests for apps in flight, including streams and connections that were upgraded."}),
		upgrades: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: space + "upgrades", Help: "Open connections to apps that were upgraded, such as WebSockets."}),
		wakes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: space + "wakes_total", Help: "Requests to wake an app that does not run."}),
	}
	for of := range m.durations {
		m.durations[of] = m.duration.WithLabelValues(visibilityNames[of])
	}
	var failed error
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.cached, m.inFlight, m.upgrades, m.wakes} {
		failed = errors.Join(failed, r.Register(c))
	}
	for of := range m.counters {
		for visibility := range m.counters[of] {
			for class := range m.counters[of][visibility] {
				name := string(rune('0'+class)) + "xx"
				m.counters[of][visibility][class] = m.requests.WithLabelValues(outcomeNames[of], name, visibilityNames[visibility])
			}
		}
	}
	return m, failed
}

// lookups returns the function that counts the look-ups of a cache.
func (m *metrics) lookups(kind string) func(hit bool) {
	memory, asked := m.cached.WithLabelValues(kind, "memory"), m.cached.WithLabelValues(kind, "asked")
	return func(hit bool) {
		if hit {
			memory.Inc()
		} else {
			asked.Inc()
		}
	}
}

func (m *metrics) observe(x *exchange, elapsed time.Duration) {
	visibility := 0
	if x.target != nil {
		visibility = 1
		if x.target.public {
			visibility = 2
		}
	}
	if cause := x.stopped(); x.outcome == outcomeProxied && cause != nil {
		x.outcome = outcomeEnded
		if cause == errGone {
			x.outcome = outcomeGone
		}
	}
	m.counters[x.outcome][visibility][min(max(x.status/100, 0), 5)].Inc()
	if !x.upgrade {
		m.durations[visibility].Observe(elapsed.Seconds())
	}
}
