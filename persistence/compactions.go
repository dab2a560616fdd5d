package persistence

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// compactionScheduler decides when Pebble runs compactions. It grants none until start is called, and then as many at a
// time as Pebble allows itself, as Pebble's default scheduler does.
//
// pebble.Open waits for running compactions before it removes obsolete files. After a kill, the flush of the replayed log
// would start compactions that take seconds. Store.start therefore calls start once pebble.Open has returned.
//
// Pebble calls TrySchedule with its locks held. mu is therefore never held during GetWaitingCompaction and Schedule,
// which take the same locks and are called by the goroutine of run only.
type compactionScheduler struct {
	db pebble.DBForCompaction

	mu sync.Mutex
	// started is set by start and stopped by Unregister. Compactions are granted only between the two.
	started, stopped bool
	// running is the number of granted compactions that have not ended.
	running int

	// changed has an element if a compaction may have become possible since run last checked.
	changed  chan struct{}
	stop     chan struct{}
	finished chan struct{}
}

// compactionInterval is the time between checks of run, since Pebble does not report everything that makes a compaction
// possible.
const compactionInterval = 100 * time.Millisecond

func newCompactionScheduler() *compactionScheduler {
	return &compactionScheduler{
		changed: make(chan struct{}, 1), stop: make(chan struct{}), finished: make(chan struct{}),
	}
}

// Register is called by pebble.Open, before any other method.
func (s *compactionScheduler) Register(_ int, db pebble.DBForCompaction) { s.db = db }

// start begins to grant compactions. It is called once, after Register.
func (s *compactionScheduler) start() {
	s.mu.Lock()
	s.started = true
	s.mu.Unlock()
	s.UpdateGetAllowedWithoutPermission()
	go s.run()
}

// Unregister stops granting compactions. When it returns, no call to the database is in progress and none follows.
func (s *compactionScheduler) Unregister() {
	s.mu.Lock()
	s.stopped = true
	started := s.started
	s.mu.Unlock()
	close(s.stop)
	if started {
		<-s.finished
	}
}

// TrySchedule grants a compaction that Pebble wants to run, or returns false. After a refusal, run offers the compaction
// as soon as it is allowed.
func (s *compactionScheduler) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	return s.acquire(), s
}

// acquire reports whether one more compaction may run, and if so counts it as running.
func (s *compactionScheduler) acquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.stopped || s.running >= s.db.GetAllowedWithoutPermission() {
		return false
	}
	s.running++
	return true
}

func (s *compactionScheduler) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// UpdateGetAllowedWithoutPermission wakes run. It does not block.
func (s *compactionScheduler) UpdateGetAllowedWithoutPermission() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// run offers Pebble the compactions that are allowed, until Unregister is called.
func (s *compactionScheduler) run() {
	defer close(s.finished)
	ticker := time.NewTicker(compactionInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		case <-s.changed:
		}
		for s.acquire() {
			if waiting, _ := s.db.GetWaitingCompaction(); !waiting || !s.db.Schedule(s) {
				s.release()
				break
			}
		}
	}
}

// Started, MeasureCPU, CumulativeStats and Done are the methods of a granted compaction. Done ends it.
func (s *compactionScheduler) Started()                                                {}
func (s *compactionScheduler) MeasureCPU(pebble.CompactionGoroutineKind)               {}
func (s *compactionScheduler) CumulativeStats(stats pebble.CompactionGrantHandleStats) {}
func (s *compactionScheduler) Done() {
	s.release()
	s.UpdateGetAllowedWithoutPermission()
}
