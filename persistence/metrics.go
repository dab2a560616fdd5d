package persistence

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// reason is why a proposal was not written.
type reason string

const (
	accepted  reason = ""
	closed    reason = "closed"
	queueFull reason = "queue"
	diskFull  reason = "disk"
	tooLarge  reason = "size"
	conflict  reason = "conflict"
	notLeader reason = "epoch"
)

type metrics struct {
	batch            prometheus.Histogram
	latency          prometheus.Histogram
	bytes            prometheus.Counter
	snapshots        *prometheus.CounterVec
	refused          *prometheus.CounterVec
	backgroundErrors prometheus.Counter
	damagedReads     prometheus.Counter
	stalls           prometheus.Counter

	partitionFailures prometheus.Counter
}

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
			Name: "atelier_journal_snapshots_dropped_total", Help: "Snapshots of entities not kept, by reason."}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "atelier_journal_refused_total", Help: "Proposals not written, by reason."}, []string{"reason"}),
		backgroundErrors: counter("background_errors_total", "Failed flushes and compactions."),
		damagedReads:     counter("damaged_reads_total", "Reads that met a damaged block of a table."),
		stalls:           counter("write_stalls_total", "Times that writes waited for flushes or compactions."),

		partitionFailures: counter("partition_failures_total", "Errors that ended the term of one partition."),
	}
	for _, why := range []reason{closed, queueFull, diskFull, tooLarge, conflict, notLeader} {
		m.refuse(why, 0) // a series that begins at 0 shows its first increase
		m.snapshots.WithLabelValues(string(why))
	}
	return m
}

func (m *metrics) refuse(why reason, n int) {
	m.refused.WithLabelValues(string(why)).Add(float64(n))
}

// commit counts what one commit carried of some partitions.
func (m *metrics) commit(lanes []*lane, bytes int, took time.Duration) {
	proposals := 0
	for _, l := range lanes {
		r := &l.round
		proposals += len(r.proposals)
		m.snapshots.WithLabelValues(string(notLeader)).Add(float64(r.dropped))
		for i := range r.results {
			if err := r.results[i].Err; err != nil {
				m.refuse(refusal(err), 1)
			}
		}
	}
	if proposals > 0 {
		m.batch.Observe(float64(proposals))
		m.latency.Observe(took.Seconds())
	}
	m.bytes.Add(float64(bytes))
}

func refusal(err error) reason {
	if stale := (*ConflictError)(nil); errors.As(err, &stale) {
		return conflict
	}
	return notLeader
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.batch, m.latency, m.bytes, m.snapshots, m.refused, m.backgroundErrors, m.damagedReads, m.stalls,
		m.partitionFailures}
}
