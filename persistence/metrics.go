package persistence

import (
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// reason is the reason why a proposal or snapshot was not written. It is a label of metrics.
type reason string

const (
	reasonNone      reason = ""
	reasonClosed    reason = "closed"
	reasonQueueFull reason = "queue"
	reasonDiskFull  reason = "disk"
	reasonTooLarge  reason = "size"
	reasonConflict  reason = "conflict"
	reasonNotLeader reason = "epoch"
)

// metrics are counted by the journal itself; storeMetrics are read from the store.
type metrics struct {
	batch            prometheus.Histogram
	latency          prometheus.Histogram
	bytes            prometheus.Counter
	snapshots        *prometheus.CounterVec
	refused          *prometheus.CounterVec
	backgroundErrors prometheus.Counter
	damagedReads     prometheus.Counter
	checkFaults      prometheus.Counter
	tornLogs         prometheus.Counter
	stalls           prometheus.Counter

	partitionFailures prometheus.Counter
}

// newMetrics returns the metrics that the journal counts itself.
func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "atelier_journal_" + name, Help: help})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		o := prometheus.HistogramOpts{Name: "atelier_journal_" + name, Help: help, Buckets: buckets}
		return prometheus.NewHistogram(o)
	}
	m := &metrics{
		batch:   histogram("batch_proposals", "Proposals in a commit.", prometheus.ExponentialBuckets(1, 2, 11)),
		latency: histogram("commit_seconds", "Time to apply and sync a commit.", prometheus.ExponentialBuckets(50e-6, 2, 16)),
		bytes:   counter("bytes_total", "Bytes of committed proposals and snapshots."),
		snapshots: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_journal_snapshots_dropped_total", Help: "Snapshots of entities that were not saved, by reason."}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_journal_refused_total", Help: "Refused proposals, by reason."}, []string{"reason"}),
		backgroundErrors: counter("background_errors_total", "Failed flushes and compactions."),
		damagedReads:     counter("damaged_reads_total", "Reads that met a damaged block of a table."),
		checkFaults:      counter("check_faults_total", "Faults that checks of the running journal have found."),
		tornLogs:         counter("incomplete_logs_total", "Starts whose last log ended with an incomplete record."),
		stalls:           counter("write_stalls_total", "Times when writes had to wait for flushes or compactions."),

		partitionFailures: counter("partition_failures_total", "Errors that ended the term of a single partition."),
	}
	for _, why := range []reason{reasonClosed, reasonQueueFull, reasonDiskFull, reasonTooLarge, reasonConflict, reasonNotLeader} {
		m.countRefused(why, 0) // Prometheus sees the first increase only of a series that begins at 0
		m.snapshots.WithLabelValues(string(why))
	}
	return m
}

// countRefused counts n refused proposals.
func (m *metrics) countRefused(why reason, n int) {
	m.refused.WithLabelValues(string(why)).Add(float64(n))
}

// countCommit counts the rounds of one commit.
func (m *metrics) countCommit(lanes []*lane, bytes int, took time.Duration) {
	proposals := 0
	for _, l := range lanes {
		r := &l.round
		proposals += len(r.proposals)
		m.snapshots.WithLabelValues(string(reasonNotLeader)).Add(float64(r.droppedSnapshots))
		for i := range r.results {
			if err := r.results[i].Err; err != nil {
				m.countRefused(reasonOf(err), 1)
			}
		}
	}
	if proposals > 0 {
		m.batch.Observe(float64(proposals))
		m.latency.Observe(took.Seconds())
	}
	m.bytes.Add(float64(bytes))
}

// reasonOf returns the reason of a refusal by the committer.
func reasonOf(err error) reason {
	if stale := (*ConflictError)(nil); errors.As(err, &stale) {
		return reasonConflict
	}
	return reasonNotLeader
}

// collectors returns all metrics.
func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.batch, m.latency, m.bytes, m.snapshots, m.refused, m.backgroundErrors, m.damagedReads, m.checkFaults, m.tornLogs, m.stalls,
		m.partitionFailures}
}

// Collector returns the metrics of the journal, including the most important ones of Pebble.
func (s *Store) Collector() prometheus.Collector { return collector{s} }

// collector implements prometheus.Collector.
type collector struct{ store *Store }

// storeMetric is a metric that is read from the store at each collection.
type storeMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *Store, m *pebble.Metrics) float64
}

// newStoreMetric returns a metric of the store. name is without the prefix atelier_journal_.
func newStoreMetric(name, help string, kind prometheus.ValueType, value func(s *Store, m *pebble.Metrics) float64) storeMetric {
	return storeMetric{prometheus.NewDesc("atelier_journal_"+name, help, nil, nil), kind, value}
}

var storeMetrics = []storeMetric{
	newStoreMetric("queue_proposals", "Proposals in the queue.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { n, _ := s.queue.depth(); return float64(n) }),
	newStoreMetric("queue_bytes", "Bytes of the proposals in the queue.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { _, n := s.queue.depth(); return float64(n) }),
	newStoreMetric("failed", "1 if the journal has failed and writes nothing more.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { return boolValue(s.failure.cause() != nil) }),
	newStoreMetric("failed_partitions", "Partitions that have failed and have no leader.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { return float64(s.queue.failedCount()) }),
	newStoreMetric("disk_full", "1 while proposals are refused because the disk is nearly full.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 {
			return boolValue(diskState(s.diskSpace.state.Load()) != spacious)
		}),
	newStoreMetric("reserve_files", "Spare files that the journal has for when the disk is full.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { return float64(s.reserve.left.Load()) }),
	newStoreMetric("workspaces_bytes", "Bytes of the events of all workspaces.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { sum, _ := s.workspaces.total(); return float64(sum) }),
	newStoreMetric("largest_workspace_bytes", "Bytes of the events of the workspace that has most.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { _, most := s.workspaces.total(); return float64(most) }),
	newStoreMetric("acceptances", "Times an operator has accepted the journal as it was, over all processes.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { return float64(s.accepted.times) }),
	newStoreMetric("accepted_missing_events", "Events that were known to be missing when the journal was accepted.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { return float64(s.accepted.missing) }),
	newStoreMetric("pebble_disk_bytes", "Disk space that Pebble uses.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.DiskSpaceUsage()) }),
	newStoreMetric("pebble_wal_bytes_total", "Bytes written to the log.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.WAL.BytesWritten) }),
	newStoreMetric("pebble_memtable_bytes", "Memory of memtables.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.MemTable.Size) }),
	newStoreMetric("pebble_cache_bytes", "Memory of cached blocks.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.BlockCache.Size) }),
	newStoreMetric("pebble_cache_hits_total", "Blocks found in the cache.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.BlockCache.Hits) }),
	newStoreMetric("pebble_cache_misses_total", "Blocks read from disk.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.BlockCache.Misses) }),
	newStoreMetric("pebble_flushes_total", "Flushed memtables.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Flush.Count) }),
	newStoreMetric("pebble_compactions_total", "Compactions.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Compact.Count) }),
	newStoreMetric("pebble_compaction_debt_bytes", "Estimated bytes that compactions still have to write.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Compact.EstimatedDebt) }),
	newStoreMetric("pebble_l0_sublevels", "Sublevels of level 0, each of which a read may have to search.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Levels[0].Sublevels) }),
	newStoreMetric("pebble_read_amplification", "Levels and sublevels that a read may have to search.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.ReadAmp()) }),
	newStoreMetric("pebble_snapshots", "Open snapshots.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Snapshots.Count) }),
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, one := range c.store.metrics.collectors() {
		one.Describe(out)
	}
	for _, g := range storeMetrics {
		out <- g.desc
	}
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, one := range c.store.metrics.collectors() {
		one.Collect(out)
	}
	if c.store.views.enter() != nil {
		return // Pebble is closed
	}
	defer c.store.views.exit()
	m := c.store.db.Metrics()
	for _, g := range storeMetrics {
		out <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(c.store, m))
	}
}
