package apps

import "github.com/prometheus/client_golang/prometheus"

// metrics count apps together, never by id.
type metrics struct {
	starts  *prometheus.CounterVec
	crashes prometheus.Counter
	ready   prometheus.Histogram
	apps    *prometheus.Desc
}

func newMetrics() *metrics {
	const space = "atelier_app_"
	return &metrics{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: space + "starts_total", Help: "Starts of processes of apps: ready when they accept connections, or failed."}, []string{"result"}),
		crashes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: space + "crashes_total", Help: "Unexpected ends, and failed starts, of processes of apps that had been accepted."}),
		ready: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: space + "ready_seconds", Help: "Time from the start of a process of an app until it accepts connections.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 13)}),
		apps: prometheus.NewDesc(space+"running", "Apps that are to run, by state: ready, starting or failing.", []string{"state"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (s *Supervisor) Describe(to chan<- *prometheus.Desc) {
	s.metrics.starts.Describe(to)
	s.metrics.crashes.Describe(to)
	s.metrics.ready.Describe(to)
	to <- s.metrics.apps
	s.logs.dropped.Describe(to)
}

// Collect implements prometheus.Collector.
func (s *Supervisor) Collect(to chan<- prometheus.Metric) {
	s.metrics.starts.Collect(to)
	s.metrics.crashes.Collect(to)
	s.metrics.ready.Collect(to)
	s.logs.dropped.Collect(to)
	count := map[string]int{"ready": 0, "starting": 0, "failing": 0}
	s.mu.Lock()
	for _, l := range s.running {
		l.mu.Lock()
		switch {
		case l.current != nil:
			count["ready"]++
		case l.isFailing:
			count["failing"]++
		default:
			count["starting"]++
		}
		l.mu.Unlock()
	}
	s.mu.Unlock()
	for state, n := range count {
		to <- prometheus.MustNewConstMetric(s.metrics.apps, prometheus.GaugeValue, float64(n), state)
	}
}
