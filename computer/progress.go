package computer

import "sync"

// progresses has how far the backups and restores are that are being carried out, by task.
type progresses struct {
	mu sync.Mutex
	of map[string]progress
}

type progress struct{ done, total int64 }

// begin returns the function that records a task's progress, and the one that forgets it.
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

// Progress returns how many bytes of how many a backup or a restore has worked off in its current attempt. A total may be
// an estimate. known is false for a task that this process is not carrying out at the moment.
func (f *Fleet) Progress(taskID string) (done, total int64, known bool) {
	f.progress.mu.Lock()
	defer f.progress.mu.Unlock()
	of, known := f.progress.of[taskID]
	return of.done, of.total, known
}
