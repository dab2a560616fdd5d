package computer

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// metrics are the metrics of a Fleet. Kinds of processes are exec, terminal, session and app.
type metrics struct {
	samples   *prometheus.CounterVec
	running   *prometheus.GaugeVec
	starts    *prometheus.CounterVec
	ends      *prometheus.CounterVec
	evictions *prometheus.CounterVec
	refusals  *prometheus.CounterVec
	// memoryEnds counts process groups that were ended because the memory of all computers was short.
	memoryEnds prometheus.Counter
	leftovers  *prometheus.CounterVec
	backups    *prometheus.CounterVec
	// lastBackup is the time of the last backup in this process, in seconds since the Unix epoch.
	lastBackup prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{
		samples: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_computer_samples_total", Help: "Checks of computers by outcome: found, missing, failed.",
		}, []string{"outcome"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "atelier_computer_processes", Help: "Running processes by kind: exec, terminal, session, app. Descendants are not counted.",
		}, []string{"kind"}),
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_computer_process_starts_total",
			Help: "Starts of processes by kind and outcome: started, refused, failed.",
		}, []string{"kind", "outcome"}),
		ends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_computer_process_ends_total",
			Help: "Ends of processes by kind and reason: exited, out_of_memory, disk_full, stopped, lost.",
		}, []string{"kind", "reason"}),
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_computer_idle_evictions_total",
			Help: "Idle processes of agents that were ended because another process needed something, by reason: place, memory.",
		}, []string{"reason"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_computer_process_refusals_total",
			Help: "Starts of processes that were refused because places or memory were short, by kind and reason: node, node_memory (all is taken), workspace, person, workspace_memory, person_memory (it has its share).",
		}, []string{"kind", "reason"}),
		memoryEnds: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "atelier_computer_memory_ends_total",
			Help: "Groups of processes that were ended because all computers together used nearly all memory that they may use.",
		}),
		leftovers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_computer_leftovers_total",
			Help: "What an earlier process of the node had left on the machine and the start has removed, by kind.",
		}, []string{"kind"}),
		backups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_backups_total",
			Help: "Backups of drives by outcome: taken, covered (not needed, because nothing has changed), failed.",
		}, []string{"outcome"}),
		lastBackup: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "atelier_backup_last_success_timestamp_seconds",
			Help: "The time at which this process has last taken a backup of a drive, or found that none was needed. 0: it has not.",
		}),
	}
	// A series that begins at 0 shows its first increase.
	for _, outcome := range []string{"found", "missing", "failed"} {
		m.samples.WithLabelValues(outcome)
	}
	for _, kind := range []string{"process", "mount", "cgroup", "namespace", "socket", "container"} {
		m.leftovers.WithLabelValues(kind)
	}
	for _, reason := range []string{evictedForPlace, evictedForMemory} {
		m.evictions.WithLabelValues(reason)
	}
	for _, outcome := range []string{"taken", "covered", "failed"} {
		m.backups.WithLabelValues(outcome)
	}
	for _, k := range []computerv1.ProcessKind{
		computerv1.ProcessKind_PROCESS_KIND_EXEC, computerv1.ProcessKind_PROCESS_KIND_TERMINAL,
		computerv1.ProcessKind_PROCESS_KIND_SESSION, computerv1.ProcessKind_PROCESS_KIND_APP,
	} {
		kind := kindOfProcess(k)
		m.running.WithLabelValues(kind)
		for _, outcome := range []string{"started", "refused", "failed"} {
			m.starts.WithLabelValues(kind, outcome)
		}
		for _, reason := range refusalReasons {
			m.refusals.WithLabelValues(kind, reason)
		}
		for _, reason := range []string{exited, string(EndedOutOfMemory), string(EndedDiskFull), string(EndedStopped), string(EndedLost)} {
			m.ends.WithLabelValues(kind, reason)
		}
	}
	return m
}

// The reasons to end idle processes.
const (
	evictedForPlace  = "place"
	evictedForMemory = "memory"
)

// refusalReasons has the label of each error of a start that finds no place or no memory.
var refusalReasons = map[*entity.Error]string{
	errNodeBusy: "node", errWorkspaceBusy: "workspace", errPersonBusy: "person",
	errNodeMemory: "node_memory", errWorkspaceMemory: "workspace_memory", errPersonMemory: "person_memory",
}

// exited is the reason of a process that ended by itself or that its user has ended.
const exited = "exited"

// countStart counts an attempt to start a process.
func (m *metrics) countStart(k computerv1.ProcessKind, err error) {
	outcome := "started"
	switch {
	case err != nil && entity.IsRefusal(err):
		outcome = "refused"
	case err != nil:
		outcome = "failed"
	}
	m.starts.WithLabelValues(kindOfProcess(k), outcome).Inc()
	if refused, is := errors.AsType[*entity.Error](err); is && refusalReasons[refused] != "" {
		m.refusals.WithLabelValues(kindOfProcess(k), refusalReasons[refused]).Inc()
	}
}

// countEnd counts the end of a process that was started.
func (m *metrics) countEnd(k computerv1.ProcessKind, exit Exit) {
	reason := exited
	if exit.Reason != "" {
		reason = string(exit.Reason)
	}
	m.running.WithLabelValues(kindOfProcess(k)).Dec()
	m.ends.WithLabelValues(kindOfProcess(k), reason).Inc()
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.samples, m.running, m.starts, m.ends, m.evictions, m.refusals, m.memoryEnds, m.leftovers, m.backups, m.lastBackup}
}

// Describe implements prometheus.Collector.
func (f *Fleet) Describe(descriptions chan<- *prometheus.Desc) {
	for _, c := range f.metrics.collectors() {
		c.Describe(descriptions)
	}
	descriptions <- overdueDescription
	descriptions <- placesDescription
	descriptions <- idleDescription
	descriptions <- usedMemoryDescription
	descriptions <- memoryLimitDescription
}

// Collect implements prometheus.Collector.
func (f *Fleet) Collect(metrics chan<- prometheus.Metric) {
	for _, c := range f.metrics.collectors() {
		c.Collect(metrics)
	}
	metrics <- prometheus.MustNewConstMetric(overdueDescription, prometheus.GaugeValue, float64(f.overdue.total()))
	metrics <- prometheus.MustNewConstMetric(placesDescription, prometheus.GaugeValue, float64(f.o.MaxProcesses))
	f.processes.mu.Lock()
	idle, _ := f.processes.idle("")
	f.processes.mu.Unlock()
	metrics <- prometheus.MustNewConstMetric(idleDescription, prometheus.GaugeValue, float64(idle))
	used, limit := f.shared.last()
	metrics <- prometheus.MustNewConstMetric(usedMemoryDescription, prometheus.GaugeValue, float64(used))
	metrics <- prometheus.MustNewConstMetric(memoryLimitDescription, prometheus.GaugeValue, float64(limit))
}

var (
	placesDescription = prometheus.NewDesc("atelier_computer_process_places",
		"The number of processes that may run in all computers together; 0: no limit.", nil, nil)
	usedMemoryDescription = prometheus.NewDesc("atelier_computer_memory_used_bytes",
		"Memory that all computers together used when it was last measured; it is measured while processes run.", nil, nil)
	memoryLimitDescription = prometheus.NewDesc("atelier_computer_memory_limit_bytes",
		"Memory that all computers together may use; 0: no limit, or no process has run yet.", nil, nil)
	idleDescription = prometheus.NewDesc("atelier_computer_idle_processes",
		"Processes of agents without a running turn, which end when another process needs their place or memory.", nil, nil)
)
