package observe

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	events    *prometheus.CounterVec
	changes   *prometheus.CounterVec
	rows      prometheus.Counter
	overflows *prometheus.CounterVec
	scans     *prometheus.CounterVec
	watches   prometheus.Gauge
	processes prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_observe_events_total",
			Help: "Events of the file system by outcome: attributed to a watch, to the system because the process belongs to none (unattributed), made by this process (own), elsewhere or on drives that are not watched (elsewhere), in a folder that was gone (lost).",
		}, []string{"outcome"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_observe_changes_dropped_total",
			Help: "Changes without a row: replaced or removed by a later change (replaced), of a name that is no path of a drive (unnamed), or a batch that the activity refuses (refused).",
		}, []string{"reason"}),
		rows: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atelier_observe_rows_total", Help: "Operations recorded for changes of processes.",
		}),
		overflows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_observe_overflows_total",
			Help: "Times when changes were missed, which a scan repairs: the kernel's queue (kernel), folders that had gone (folders), the changes that wait for the journal (pending), the forks of processes (processes).",
		}, []string{"queue"}),
		scans: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_observe_scans_total", Help: "Scans of drives by outcome.",
		}, []string{"outcome"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_observe_watches", Help: "Open watches of drives.",
		}),
		processes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_observe_processes", Help: "Processes that belong to watches.",
		}),
	}
	// A series that begins at 0 shows its first increase.
	for _, outcome := range []string{"attributed", "unattributed", "own", "elsewhere", "lost"} {
		m.events.WithLabelValues(outcome)
	}
	for _, queue := range []string{"kernel", "folders", "pending", "processes"} {
		m.overflows.WithLabelValues(queue)
	}
	for _, outcome := range []string{"ok", "error"} {
		m.scans.WithLabelValues(outcome)
	}
	for _, reason := range []string{"replaced", "unnamed", "refused"} {
		m.changes.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.events, m.changes, m.rows, m.overflows, m.scans, m.watches, m.processes}
}

// Describe implements prometheus.Collector.
func (o *Observer) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range o.metrics.all() {
		c.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector.
func (o *Observer) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range o.metrics.all() {
		c.Collect(metrics)
	}
}
