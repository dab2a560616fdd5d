package egress

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	computers prometheus.Gauge
	flows     *prometheus.GaugeVec
	opened    *prometheus.CounterVec
	refused   *prometheus.CounterVec
	failed    *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	queries   *prometheus.CounterVec
	// out and in are the counters of bytes by direction.
	out, in prometheus.Counter
}

// protocols are the values of the label protocol.
var protocols = []string{"tcp", "udp", "proxy"}

func newMetrics() *metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "atelier_egress_" + name, Help: help}, []string{label})
	}
	m := &metrics{
		computers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_egress_computers", Help: "Computers with a link to the network.",
		}),
		flows: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "atelier_egress_flows", Help: "Open connections and exchanges of datagrams of computers, by protocol.",
		}, []string{"protocol"}),
		opened:  counter("flows_opened_total", "Connections and exchanges of datagrams that computers opened, by protocol.", "protocol"),
		refused: counter("flows_refused_total", "Connections and datagrams of computers that were refused, by reason.", "reason"),
		failed:  counter("flows_failed_total", "Connections of computers whose destination did not accept them, by protocol.", "protocol"),
		bytes:   counter("bytes_total", "Bytes that computers sent (out) and received (in).", "direction"),
		queries: counter("dns_queries_total", "DNS queries of computers, by outcome.", "outcome"),
	}
	m.out, m.in = m.bytes.WithLabelValues("out"), m.bytes.WithLabelValues("in")
	for _, protocol := range protocols { // a series that begins at 0 shows its first increase
		m.flows.WithLabelValues(protocol)
		m.opened.WithLabelValues(protocol)
		m.failed.WithLabelValues(protocol)
	}
	for _, reason := range []refusal{refusedPrivate, refusedOwn, refusedLoopback, refusedMetadata, refusedPort, refusedRate, refusedFlows} {
		m.refused.WithLabelValues(string(reason))
	}
	for _, outcome := range []string{"answered", "failed", "refused", "invalid"} {
		m.queries.WithLabelValues(outcome)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.computers, m.flows, m.opened, m.refused, m.failed, m.bytes, m.queries}
}

// Describe implements prometheus.Collector.
func (e *Egress) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range e.metrics.all() {
		c.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector.
func (e *Egress) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range e.metrics.all() {
		c.Collect(metrics)
	}
}
