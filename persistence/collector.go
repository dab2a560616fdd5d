package persistence

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// Collector is the journal's metrics, and the main ones of Pebble.
func (s *Store) Collector() prometheus.Collector { return collector{s} }

type collector struct{ store *Store }

// gauge is a figure read when it is asked for.
type gauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *Store, m *pebble.Metrics) float64
}

func reading(name, help string, kind prometheus.ValueType, value func(s *Store, m *pebble.Metrics) float64) gauge {
	return gauge{prometheus.NewDesc("atelier_journal_"+name, help, nil, nil), kind, value}
}

var gauges = []gauge{
	reading("queue_proposals", "Proposals that wait to be written.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { n, _ := s.queue.depth(); return float64(n) }),
	reading("queue_bytes", "Bytes of proposals that wait to be written.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { _, n := s.queue.depth(); return float64(n) }),
	reading("failed", "1 when the journal can write no more.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { return truth(s.failure.cause() != nil) }),
	reading("failed_partitions", "Partitions that take no proposals after an error.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { return float64(s.queue.failures()) }),
	reading("disk_full", "1 while appends are refused for want of space.", prometheus.GaugeValue,
		func(s *Store, _ *pebble.Metrics) float64 { return truth(s.space.full.Load()) }),
	reading("pebble_disk_bytes", "Space that Pebble uses.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.DiskSpaceUsage()) }),
	reading("pebble_wal_bytes_total", "Bytes written to the log.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.WAL.BytesWritten) }),
	reading("pebble_memtable_bytes", "Memory of memtables.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.MemTable.Size) }),
	reading("pebble_cache_bytes", "Memory of cached blocks.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.BlockCache.Size) }),
	reading("pebble_cache_hits_total", "Blocks found in the cache.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.BlockCache.Hits) }),
	reading("pebble_cache_misses_total", "Blocks read from disk.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.BlockCache.Misses) }),
	reading("pebble_flushes_total", "Memtables written out.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Flush.Count) }),
	reading("pebble_compactions_total", "Compactions.", prometheus.CounterValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Compact.Count) }),
	reading("pebble_compaction_debt_bytes", "Bytes to compact until the levels are in shape.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Compact.EstimatedDebt) }),
	reading("pebble_l0_sublevels", "Sublevels of level 0, which reads go through.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Levels[0].Sublevels) }),
	reading("pebble_read_amplification", "Tables that a read may go through.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.ReadAmp()) }),
	reading("pebble_snapshots", "Open snapshots.", prometheus.GaugeValue,
		func(_ *Store, m *pebble.Metrics) float64 { return float64(m.Snapshots.Count) }),
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, one := range c.store.metrics.all() {
		one.Describe(out)
	}
	for _, g := range gauges {
		out <- g.desc
	}
}

func (c collector) Collect(out chan<- prometheus.Metric) {
	for _, one := range c.store.metrics.all() {
		one.Collect(out)
	}
	if c.store.views.enter() != nil {
		return // Pebble is closed
	}
	defer c.store.views.exit()
	m := c.store.db.Metrics()
	for _, g := range gauges {
		out <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(c.store, m))
	}
}
