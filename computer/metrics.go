package computer

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	tasks   *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	samples *prometheus.CounterVec
}

func newMetrics() *metrics {
	return &metrics{
		tasks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_computer_tasks_total", Help: "Tries of tasks of computers by kind and outcome: done, retried, failed.",
		}, []string{"kind", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "atelier_computer_task_seconds", Help: "How long a try of a task took.",
			Buckets: prometheus.ExponentialBuckets(0.005, 4, 10),
		}, []string{"kind"}),
		samples: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_computer_samples_total", Help: "Checks of computers by outcome: found, missing, failed.",
		}, []string{"outcome"}),
	}
}

// Describe is of prometheus.Collector.
func (f *Fleet) Describe(descriptions chan<- *prometheus.Desc) {
	f.metrics.tasks.Describe(descriptions)
	f.metrics.seconds.Describe(descriptions)
	f.metrics.samples.Describe(descriptions)
}

// Collect is of prometheus.Collector.
func (f *Fleet) Collect(metrics chan<- prometheus.Metric) {
	f.metrics.tasks.Collect(metrics)
	f.metrics.seconds.Collect(metrics)
	f.metrics.samples.Collect(metrics)
}
