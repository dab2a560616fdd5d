package edge

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/answer"
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
	lookups  answer.Lookups
	inFlight prometheus.Gauge
	upgrades prometheus.Gauge
	wakes    prometheus.Counter

	// counters has the series of requests and durations has the series of duration, so that a request looks up no labels.
	counters  [outcomes][3]answer.Classes
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
		lookups: answer.NewLookups(space, "Look-ups of hosts and visits: memory is answered by the cache, asked by entities."),
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
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.lookups, m.inFlight, m.upgrades, m.wakes} {
		failed = errors.Join(failed, r.Register(c))
	}
	for of := range m.counters {
		for visibility := range m.counters[of] {
			m.counters[of][visibility] = answer.NewClasses(m.requests,
				prometheus.Labels{"outcome": outcomeNames[of], "visibility": visibilityNames[visibility]})
		}
	}
	return m, failed
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
	m.counters[x.outcome][visibility].Count(x.status)
	if !x.upgrade {
		m.durations[visibility].Observe(elapsed.Seconds())
	}
}
