package server

import (
	"bytes"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/answer"
)

// metrics counts by route, method and class of status, but never by id, which would make the number of series unbounded.
type metrics struct {
	requests *prometheus.CounterVec
	// duration is for ordinary requests. Transfers and streams have histograms of their own, because their duration depends
	// on the size of the content and on the client.
	duration, transfers, streamed *prometheus.HistogramVec
	lookups                       answer.Lookups
	streams                       prometheus.Gauge
	inFlight                      prometheus.Gauge
	frames                        prometheus.Counter
	handshakes                    *prometheus.CounterVec
	bytes                         prometheus.Counter
	unrouted                      meter
	exposition                    *exposition

	credentialLookup, slugLookup func(hit bool)
}

func newMetrics(r prometheus.Registerer, g prometheus.Gatherer) (*metrics, error) {
	const space = "atelier_http_"
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: space + "requests_total", Help: "Requests answered; the status is 0xx if the client had gone before the answer."}, []string{"route", "method", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: space + "request_duration_seconds", Help: "Time from a request's head to the end of its response, without transfers and streams.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 3, 12)}, []string{"route", "method"}),
		transfers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: space + "transfer_duration_seconds", Help: "Time from the head to the end of the response of requests on drives; it grows with the content.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 12)}, []string{"route", "method"}),
		streamed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: space + "stream_duration_seconds", Help: "How long streams were open.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8)}, []string{"route", "method"}),
		lookups: answer.NewLookups(space, "Look-ups of credentials and slugs: memory is answered by the cache, asked by an entity."),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: space + "streams", Help: "Open streams of file activity, running commands and connections to terminals."}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: space + "requests_in_flight", Help: "Requests in flight, including streams."}),
		frames: prometheus.NewCounter(prometheus.CounterOpts{
			Name: space + "stream_frames_total", Help: "Frames sent over streams."}),
		handshakes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: space + "tls_handshakes_total", Help: "TLS handshakes: ok, failed, or challenge for those of a certificate authority."},
			[]string{"result"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: space + "stream_bytes_total", Help: "Bytes sent over streams."}),
		exposition: newExposition(g),
	}
	var failed error
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.transfers, m.streamed, m.lookups, m.streams, m.inFlight, m.frames, m.bytes,
		m.handshakes,
	} {
		failed = errors.Join(failed, r.Register(c))
	}
	m.unrouted = m.meter(Route{Path: "none", Method: "other"})
	m.credentialLookup, m.slugLookup = m.lookups.Of("credential"), m.lookups.Of("slug")
	return m, failed
}

// countFrames counts frames that were sent over a stream.
func (m *metrics) countFrames(frames []byte) {
	m.frames.Add(float64(bytes.Count(frames, []byte("\n\n"))))
	m.bytes.Add(float64(len(frames)))
}

// meter has the series of one route, which are looked up once.
type meter struct {
	classes  answer.Classes
	duration prometheus.Observer
}

func (m *metrics) meter(r Route) meter {
	durations := m.duration
	switch r.Timing {
	case Transfer:
		durations = m.transfers
	case Streaming:
		durations = m.streamed
	}
	return meter{
		classes:  answer.NewClasses(m.requests, prometheus.Labels{"route": r.Path, "method": r.Method}),
		duration: durations.WithLabelValues(r.Path, r.Method),
	}
}

func (m meter) observe(status int, elapsed time.Duration) {
	m.classes.Count(status)
	m.duration.Observe(elapsed.Seconds())
}
