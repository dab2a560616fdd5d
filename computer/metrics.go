package computer

import "github.com/prometheus/client_golang/prometheus"

type metrics struct{ samples *prometheus.CounterVec }

func newMetrics() *metrics {
	m := &metrics{samples: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "atelier_computer_samples_total", Help: "Checks of computers by outcome: found, missing, failed.",
	}, []string{"outcome"})}
	for _, outcome := range []string{"found", "missing", "failed"} {
		m.samples.WithLabelValues(outcome) // a series that begins at 0 shows its first increase
	}
	return m
}

// Describe is of prometheus.Collector.
func (f *Fleet) Describe(descriptions chan<- *prometheus.Desc) {
	f.metrics.samples.Describe(descriptions)
}

// Collect is of prometheus.Collector.
func (f *Fleet) Collect(metrics chan<- prometheus.Metric) { f.metrics.samples.Collect(metrics) }
