package computer

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

type metrics struct {
	samples *prometheus.CounterVec
	backups *prometheus.CounterVec
	// lastBackup is the time of the last backup in this process, in seconds since the Unix epoch.
	lastBackup prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		samples: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_computer_samples_total", Help: "Checks of computers by outcome: found, missing, failed.",
		}, []string{"outcome"}),
		backups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_backups_total",
			Help: "Backups of drives by outcome: taken, covered (not needed, because nothing has changed), failed.",
		}, []string{"outcome"}),
		lastBackup: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_backup_last_success_timestamp_seconds",
			Help: "The time at which this process has last taken a backup of a drive, or found that none was needed. 0: it has not.",
		}),
	}
	for _, outcome := range []string{"found", "missing", "failed"} {
		m.samples.WithLabelValues(outcome) // a series that begins at 0 shows its first increase
	}
	for _, outcome := range []string{"taken", "covered", "failed"} {
		m.backups.WithLabelValues(outcome)
	}
	return m
}

// countBackup counts the outcome of an attempt of a backup. An attempt that will be repeated is not counted.
func (f *Fleet) countBackup(task *computerv1.Task, report proto.Message) {
	if k := task.GetKind(); k != computerv1.TaskKind_TASK_KIND_BACK_UP && k != computerv1.TaskKind_TASK_KIND_BACK_UP_AND_REPLACE {
		return
	}
	switch report.(type) {
	case *computerv1.ReportBackedUp:
		f.metrics.backups.WithLabelValues("taken").Inc()
		f.metrics.lastBackup.Set(float64(f.o.Clock().Unix()))
	case *computerv1.ReportCovered:
		f.metrics.backups.WithLabelValues("covered").Inc()
		f.metrics.lastBackup.Set(float64(f.o.Clock().Unix()))
	case *computerv1.ReportFailed:
		f.metrics.backups.WithLabelValues("failed").Inc()
	}
}

// overdue counts the overdue backups of the shares that are followed.
type overdue struct {
	mu sync.Mutex
	of map[*followed]int
}

func (o *overdue) set(f *followed, count int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of[f] = count
}

func (o *overdue) forget(f *followed) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.of, f)
}

func (o *overdue) total() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, count := range o.of {
		n += count
	}
	return n
}

var overdueDescription = prometheus.NewDesc("atelier_backups_overdue",
	"Workspaces with scheduled backups whose last one is older than two intervals.", nil, nil)

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(descriptions chan<- *prometheus.Desc) {
	f.metrics.samples.Describe(descriptions)
	f.metrics.backups.Describe(descriptions)
	f.metrics.lastBackup.Describe(descriptions)
	descriptions <- overdueDescription
}

// Collect implements prometheus.Collector.
func (f *Fleet) Collect(metrics chan<- prometheus.Metric) {
	f.metrics.samples.Collect(metrics)
	f.metrics.backups.Collect(metrics)
	f.metrics.lastBackup.Collect(metrics)
	metrics <- prometheus.MustNewConstMetric(overdueDescription, prometheus.GaugeValue, float64(f.overdue.total()))
}
