package persistence

import (
	"log/slog"
	"runtime"
	"time"
)

// writer is the goroutine that commits for the partitions that share a barrier.
type writer struct {
	queue    *queue
	barrier  barrier
	answers  *answers
	watchers *watchers
	space    *space
	metrics  *metrics
	failure  *failure
	logger   *slog.Logger

	// staged are the lanes of the commit going on, without those that have failed.
	staged []*lane

	finished chan struct{}
}

func (w *writer) run() {
	defer close(w.finished)
	var lanes []*lane
	entries := 0
	for {
		if entries > 1 {
			runtime.Gosched() // the callers that were just answered may have more: a fuller batch costs the same sync
		}
		if lanes = w.queue.take(lanes[:0]); len(lanes) == 0 {
			return
		}
		bytes := 0
		entries = 0
		for _, l := range lanes {
			bytes += l.round.sort()
			entries += len(l.round.pending)
		}
		if err := w.space.check(bytes); err != nil {
			w.refuse(lanes, err)
		} else if !w.write(lanes, bytes) {
			return
		}
		for _, l := range lanes {
			l.round.reset()
		}
	}
}

func (w *writer) refuse(lanes []*lane, err error) {
	for _, l := range lanes {
		w.metrics.refuse(diskFull, len(l.round.proposals))
		if w.queue.land(l) {
			w.answers.all(l.round.pending, err)
		}
	}
}

// write commits the rounds of the lanes. It returns false when the journal has failed: nothing more is written, and the
// entries are answered.
func (w *writer) write(lanes []*lane, bytes int) bool {
	if w.failure.cause() != nil {
		return false
	}
	start := time.Now()
	w.staged = w.staged[:0]
	for _, l := range lanes {
		if err := l.committer.stage(&l.round); err != nil {
			w.fail(l, err)
			continue
		}
		w.staged = append(w.staged, l)
	}
	if err := w.barrier.sync(); err != nil {
		w.failure.fail(err)
		return false
	}
	w.metrics.commit(w.staged, bytes, time.Since(start))
	w.staged = w.watchers.committed(w.queue, w.staged)
	for _, l := range w.staged {
		w.answers.committed(&l.round)
	}
	return w.failure.cause() == nil
}

// fail ends the term of one partition and leaves the others running: the owner is told, then what is in flight is
// answered with ErrUnknown and what waits with a NotLeaderError. Any goroutine may call it.
func (w *writer) fail(l *lane, err error) {
	w.logger.Error("a partition of the journal has failed", slog.Int("partition", int(l.partition)), slog.Any("error", err))
	w.metrics.partitionFailures.Inc()
	epoch, inFlight, waiting := w.queue.fail(l)
	w.answers.before(func() { w.watchers.lose(l.partition, epoch) })
	w.answers.all(inFlight, ErrUnknown)
	w.answers.all(waiting, &NotLeaderError{})
}

// abandon ends the terms of all partitions and answers everything there is. The writer itself may be stuck in the store.
func (w *writer) abandon() {
	inFlight, waiting := w.queue.abandon()
	w.answers.before(w.watchers.loseAll)
	w.answers.all(inFlight, ErrUnknown)
	w.answers.all(waiting, ErrClosed)
}
