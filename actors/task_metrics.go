package actors

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
)

// taskMetrics are the metrics of one kind of tasks.
type taskMetrics struct {
	running                               prometheus.Gauge
	seconds                               prometheus.Observer
	done, retried, cancelled, interrupted prometheus.Counter
}

// observeTasks makes the metrics of the kinds of tasks that have executors.
func (m *metrics) observeTasks(r prometheus.Registerer, s *System) {
	m.tasks = map[string]*taskMetrics{}
	running := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: "atelier", Name: "tasks_running", Help: "Tasks that an executor runs now, by kind.",
	}, []string{"task"})
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "atelier", Name: "task_attempts_total",
		Help: "Runs of tasks, by kind and outcome: done, retried (it failed and is tried again), cancelled, interrupted.",
	}, []string{"task", "outcome"})
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "atelier", Name: "task_seconds", Help: "How long the runs of tasks take, by kind.",
		Buckets: prometheus.ExponentialBuckets(1e-3, 4, 12),
	}, []string{"task"})
	for kind := range s.executors {
		m.tasks[kind] = &taskMetrics{
			running: running.WithLabelValues(kind), seconds: seconds.WithLabelValues(kind),
			done: attempts.WithLabelValues(kind, "done"), retried: attempts.WithLabelValues(kind, "retried"),
			cancelled: attempts.WithLabelValues(kind, "cancelled"), interrupted: attempts.WithLabelValues(kind, "interrupted"),
		}
	}
	if r != nil && len(s.executors) > 0 {
		r.MustRegister(running, attempts, seconds, &openTasks{
			system: s,
			open: prometheus.NewDesc("atelier_tasks_open",
				"Tasks that are open in the partitions led here, by kind; counted up to 1000.", []string{"task"}, nil),
			oldest: prometheus.NewDesc("atelier_tasks_oldest_seconds",
				"The age of the oldest task among those counted, by kind.", []string{"task"}, nil),
		})
	}
}

// maxCounted bounds the tasks of a kind that one scrape reads.
const maxCounted = 1000

// openTasks is a prometheus.Collector that counts the open tasks when it is asked.
type openTasks struct {
	system       *System
	open, oldest *prometheus.Desc
}

func (o *openTasks) Describe(descs chan<- *prometheus.Desc) { descs <- o.open; descs <- o.oldest }

func (o *openTasks) Collect(metrics chan<- prometheus.Metric) {
	v, err := o.system.journal.View()
	if err != nil {
		return // the journal is closed
	}
	defer v.Close()
	for kind := range o.system.executors {
		count, oldest, err := o.count(v, kind)
		if err != nil {
			metrics <- prometheus.NewInvalidMetric(o.open, err)
			continue
		}
		age := 0.0
		if count > 0 {
			age = max(o.system.clock().Sub(time.UnixMilli(oldest)).Seconds(), 0)
		}
		metrics <- prometheus.MustNewConstMetric(o.open, prometheus.GaugeValue, float64(count), kind)
		metrics <- prometheus.MustNewConstMetric(o.oldest, prometheus.GaugeValue, age, kind)
	}
}

func (o *openTasks) count(v persistence.View, kind string) (count int, oldest int64, err error) {
	for p := range o.system.terms {
		if o.system.terms[p].Load() == nil {
			continue
		}
		query := persistence.Query{Index: taskIndex, Value: taskPrefix(kind), Prefix: true}
		for row, err := range v.Index(persistence.Partition(p), query) {
			if err != nil {
				return 0, 0, err
			}
			var task runtimev1.Task
			if err := proto.Unmarshal(row.Data, &task); err != nil {
				return 0, 0, err
			}
			if count == 0 || task.GetOpenedAt() < oldest {
				oldest = task.GetOpenedAt()
			}
			if count++; count == maxCounted {
				return count, oldest, nil
			}
		}
	}
	return count, oldest, nil
}
