package drive

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
)

type metrics struct {
	operations *prometheus.CounterVec
	bytes      *prometheus.CounterVec
	inFlight   prometheus.Gauge
	unresolved prometheus.Gauge
	open       prometheus.Gauge
	evicted    prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_drive_operations_total", Help: "Operations on drives by kind and outcome.",
		}, []string{"kind", "outcome"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_drive_bytes_total", Help: "Content bytes that came in by uploads and went out by reads.",
		}, []string{"direction"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_drive_operations_in_flight", Help: "Operations that change a drive and have not ended.",
		}),
		unresolved: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_drive_operations_unresolved", Help: "Operations whose outcome the activity has not told yet.",
		}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_drive_open", Help: "Drives whose files are open.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atelier_drive_evictions_total", Help: "Open drives that were closed to make room for others.",
		}),
	}
	for _, direction := range []string{"in", "out"} {
		m.bytes.WithLabelValues(direction) // a series that begins at 0 shows its first increase
	}
	return m
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.operations, m.bytes, m.inFlight, m.unresolved, m.open, m.evicted}
}

// Describe is of prometheus.Collector.
func (d *Drives) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range d.metrics.all() {
		c.Describe(descriptions)
	}
}

// Collect is of prometheus.Collector.
func (d *Drives) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range d.metrics.all() {
		c.Collect(metrics)
	}
}

func (m *metrics) ended(kind string, err error) {
	m.operations.WithLabelValues(kind, outcome(err)).Inc()
}

// outcome is an error's code; the codes are few.
func outcome(err error) string {
	var e *entity.Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &e):
		return string(e.Code)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	}
	return string(entity.Internal)
}
