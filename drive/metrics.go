package drive

import (
	"context"
	"errors"
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/volume"
)

type metrics struct {
	operations *prometheus.CounterVec
	bytes      *prometheus.CounterVec
	inFlight   prometheus.Gauge
	unresolved prometheus.Gauge
	open       prometheus.Gauge
	evicted    prometheus.Counter
	refused    *prometheus.CounterVec
	// freeBytes and freeFiles are measured at each collection.
	freeBytes, freeFiles prometheus.GaugeFunc
}

// newMetrics returns the metrics of the drives below a folder.
func newMetrics(dir string) *metrics {
	m := &metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_drive_operations_total", Help: "Operations on drives by kind and outcome.",
		}, []string{"kind", "outcome"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_drive_bytes_total", Help: "Content bytes received in uploads (in) and sent to readers (out).",
		}, []string{"direction"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_drive_operations_in_flight", Help: "Operations that change a drive and are not finished.",
		}),
		unresolved: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_drive_operations_unresolved", Help: "Operations with an unknown outcome, which are retried in the background.",
		}),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_drive_open", Help: "Drives with open files.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atelier_drive_evictions_total", Help: "Idle drives that were closed to free file descriptors.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_drive_space_refused_total", Help: "Uploads and other changes, and checks before and while processes run, that were " +
				"refused for want of space: the quota of the drive, the share of its billing user of a disk that is nearly full, or the disk.",
		}, []string{"reason"}),
	}
	m.freeBytes = newFreeGauge(dir, "bytes", "Free bytes of the file system of the drives.", func(u volume.Usage) uint64 { return u.FreeBytes })
	m.freeFiles = newFreeGauge(dir, "files", "Free inodes of the file system of the drives; +Inf if their number is not limited.",
		func(u volume.Usage) uint64 { return u.FreeFiles })
	for _, direction := range []string{"in", "out"} {
		m.bytes.WithLabelValues(direction) // a series that begins at 0 shows its first increase
	}
	for _, reason := range quota.Reasons {
		m.refused.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) countRefusal(reason string) { m.refused.WithLabelValues(reason).Inc() }

// newFreeGauge returns a gauge of a resource of a folder's file system; NaN if it cannot be measured.
func newFreeGauge(dir, resource, help string, of func(volume.Usage) uint64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "atelier_drive_free_" + resource, Help: help}, func() float64 {
		usage, err := volume.Measure(dir)
		switch free := of(usage); {
		case err != nil:
			return math.NaN()
		case free == volume.Unlimited:
			return math.Inf(1)
		default:
			return float64(free)
		}
	})
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.operations, m.bytes, m.inFlight, m.unresolved, m.open, m.evicted, m.refused, m.freeBytes, m.freeFiles}
}

// Describe implements prometheus.Collector.
func (d *Drives) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range d.metrics.all() {
		c.Describe(descriptions)
	}
}

// Collect implements prometheus.Collector.
func (d *Drives) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range d.metrics.all() {
		c.Collect(metrics)
	}
}

// countOperation counts a finished operation.
func (m *metrics) countOperation(kind string, err error) {
	m.operations.WithLabelValues(kind, outcomeOf(err)).Inc()
}

// outcomeOf returns the label for an error: its code. There are few codes.
func outcomeOf(err error) string {
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
