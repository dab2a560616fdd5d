package actors

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	"github.com/atelier-run/atelier/persistence"
)

// metrics are labelled by kind, never by identity, so that their number is bounded.
type metrics struct {
	commands       *prometheus.CounterVec
	decide         *prometheus.HistogramVec
	commit         *prometheus.HistogramVec
	reply          *prometheus.HistogramVec
	inFlight       *prometheus.GaugeVec
	held           *prometheus.GaugeVec
	refused        *prometheus.CounterVec
	activations    *prometheus.CounterVec
	passivations   *prometheus.CounterVec
	active         *prometheus.GaugeVec
	restarts       *prometheus.CounterVec
	deadLetters    *prometheus.CounterVec
	mailbox        *prometheus.GaugeVec
	appendFailures *prometheus.CounterVec
	reactions      *prometheus.CounterVec
	reactorLag     *prometheus.GaugeVec
	parked         *prometheus.GaugeVec
	ringHits       prometheus.Counter
	ringFallbacks  prometheus.Counter
	ringBytes      prometheus.Counter
	connections    prometheus.Gauge
	wakes          prometheus.Counter
	readers        prometheus.Gauge
	passed         prometheus.Counter
	dropped        prometheus.Counter
	timers         *prometheus.CounterVec
	timerLateness  prometheus.Histogram
	tasks          map[string]*taskMetrics
	kinds          map[string]*kindMetrics
}

// kindMetrics are the metrics of one kind, without further look-ups.
type kindMetrics struct {
	ok, rejected, failed        prometheus.Counter
	givenUp                     prometheus.Counter
	decide, commit, reply       prometheus.Observer
	inFlight, held, active      prometheus.Gauge
	refused                     prometheus.Counter
	activations, passivations   prometheus.Counter
	restarts, stops             prometheus.Counter
	deadLetters, appendFailures prometheus.Counter
	mailboxDepth                prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, kinds []string) *metrics {
	latency := prometheus.ExponentialBuckets(10e-6, 4, 10)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "atelier", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "atelier", Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "atelier", Name: name, Help: help, Buckets: latency}, []string{"kind"})
	}
	m := &metrics{
		commands:       counter("actor_commands_total", "Commands answered, by outcome.", "kind", "outcome"),
		decide:         histogram("actor_decide_seconds", "From a command's arrival to its decision."),
		commit:         histogram("actor_commit_seconds", "From a command's decision to its outcome in the journal."),
		reply:          histogram("actor_reply_seconds", "From a command's arrival to its reply."),
		inFlight:       gauge("actor_in_flight", "Commands admitted and not answered.", "kind"),
		held:           gauge("actor_held_queries", "Queries that wait for a change of their entity.", "kind"),
		refused:        counter("actor_refused_total", "Commands refused because too many were in flight.", "kind"),
		activations:    counter("actor_activations_total", "Entities activated.", "kind"),
		passivations:   counter("actor_passivations_total", "Entities put out of memory because they were idle.", "kind"),
		active:         gauge("actor_active", "Entities in memory.", "kind"),
		restarts:       counter("actor_restarts_total", "Failed actors, by what their supervisor did.", "kind", "directive"),
		deadLetters:    counter("actor_dead_letters_total", "Commands whose actor was gone.", "kind"),
		mailbox:        gauge("actor_mailbox_messages", "Messages that wait in mailboxes.", "kind"),
		appendFailures: counter("actor_append_failures_total", "Appends that the journal did not take.", "kind"),
		reactions:      counter("reactor_reactions_total", "Reactions to events, by outcome.", "outcome"),
		reactorLag:     gauge("reactor_lag_events", "Events of a partition's feed that are not read, and streams whose reactions are not done.", "partition"),
		parked:         gauge("reactor_parked_streams", "Streams whose reactions are suspended because they kept failing.", "partition"),
		connections:    gauge("stream_connections", "Open activity streams.").WithLabelValues(),
		ringBytes:      counter("stream_bytes_total", "Bytes of frames handed to streams.").WithLabelValues(),
		wakes:          counter("stream_wakes_total", "Wake-ups of streams that had caught up.").WithLabelValues(),
		readers:        gauge("timeline_readers", "Open streams of timelines.").WithLabelValues(),
		passed:         counter("timeline_passed_total", "Messages passed on to the streams of timelines.").WithLabelValues(),
		dropped:        counter("timeline_dropped_total", "Messages that were dropped, because the stream of a timeline was too slow.").WithLabelValues(),
		kinds:          map[string]*kindMetrics{},
		timers:         counter("timers_delivered_total", "Due commands of timers that were sent, by outcome.", "outcome"),
		timerLateness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "atelier", Name: "timer_late_seconds", Help: "From a timer's due time to the end of its command.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 4, 12),
		}),
	}
	reads := counter("stream_reads_total", "Reads of activity streams, by source.", "source")
	m.ringHits, m.ringFallbacks = reads.WithLabelValues("ring"), reads.WithLabelValues("journal")
	for _, kind := range kinds {
		m.kinds[kind] = m.kind(kind)
	}
	// A series that begins at 0 shows its first increase.
	for _, outcome := range []string{"done", "retried", "refused", "parked", "skipped"} {
		m.reactions.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"done", "failed", "remains"} {
		m.timers.WithLabelValues(outcome)
	}
	if r != nil {
		r.MustRegister(m.commands, m.decide, m.commit, m.reply, m.inFlight, m.held, m.refused, m.activations, m.passivations, m.active,
			m.restarts, m.deadLetters, m.mailbox, m.appendFailures, m.reactions, m.reactorLag, m.parked, reads, m.connections,
			m.ringBytes, m.wakes, m.readers, m.passed, m.dropped, m.timers, m.timerLateness)
	}
	return m
}

func (m *metrics) kind(kind string) *kindMetrics {
	return &kindMetrics{
		ok:           m.commands.WithLabelValues(kind, "ok"),
		rejected:     m.commands.WithLabelValues(kind, "rejected"),
		failed:       m.commands.WithLabelValues(kind, "failed"),
		givenUp:      m.commands.WithLabelValues(kind, "given_up"),
		decide:       m.decide.WithLabelValues(kind),
		commit:       m.commit.WithLabelValues(kind),
		reply:        m.reply.WithLabelValues(kind),
		inFlight:     m.inFlight.WithLabelValues(kind),
		held:         m.held.WithLabelValues(kind),
		active:       m.active.WithLabelValues(kind),
		refused:      m.refused.WithLabelValues(kind),
		activations:  m.activations.WithLabelValues(kind),
		passivations: m.passivations.WithLabelValues(kind),
		restarts:     m.restarts.WithLabelValues(kind, "restart"),
		stops:        m.restarts.WithLabelValues(kind, "stop"),
		deadLetters:  m.deadLetters.WithLabelValues(kind),
		mailboxDepth: m.mailbox.WithLabelValues(kind),

		appendFailures: m.appendFailures.WithLabelValues(kind),
	}
}

func (k *kindMetrics) decided(arrived time.Time) { k.decide.Observe(time.Since(arrived).Seconds()) }

func (k *kindMetrics) committed(proposed time.Time) {
	k.commit.Observe(time.Since(proposed).Seconds())
}

func (k *kindMetrics) replied(arrived time.Time, err error) {
	k.inFlight.Dec()
	k.reply.Observe(time.Since(arrived).Seconds())
	k.counted(err)
}

// repliedToHeld counts the reply to a query that was held, or errGivenUp. It does not observe the time, which depends on the change that the
// query waits for.
func (k *kindMetrics) repliedToHeld(err error) {
	k.held.Dec()
	k.counted(err)
}

func (k *kindMetrics) counted(err error) {
	switch {
	case err == errGivenUp:
		k.givenUp.Inc()
	case err == nil:
		k.ok.Inc()
	case entity.IsRefusal(err):
		k.rejected.Inc()
	default:
		k.failed.Inc()
	}
}

// taskMetrics are the metrics of one kind of tasks.
type taskMetrics struct {
	running                               prometheus.Gauge
	seconds                               prometheus.Observer
	done, retried, cancelled, interrupted prometheus.Counter
}

// observeTasks registers the metrics of the kinds of tasks that have executors.
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

// maxCounted limits the tasks of a kind that one scrape reads.
const maxCounted = 1000

// openTasks is a prometheus.Collector that counts the open tasks with each scrape.
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
