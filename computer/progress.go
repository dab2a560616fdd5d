package computer

import "sync"

// progresses has the progress of the running backups and restores, by task id.
type progresses struct {
	mu sync.Mutex
	of map[string]progress
}

type progress struct{ done, total int64 }

// begin returns a function that records the progress of a task, and a function that removes the record.
func (p *progresses) begin(taskID string) (report func(done, total int64), ended func()) {
	report = func(done, total int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.of[taskID] = progress{done, total}
	}
	ended = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.of, taskID)
	}
	return report, ended
}

// Progress returns the number of bytes that a backup or a restore has processed in its current attempt and the total, which
// may be an estimate. known is false if this process is not running the task.
func (f *Fleet) Progress(taskID string) (done, total int64, known bool) {
	f.progress.mu.Lock()
	defer f.progress.mu.Unlock()
	of, known := f.progress.of[taskID]
	return of.done, of.total, known
}
