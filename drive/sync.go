package drive

import "sync"

// sharedSync lets concurrent operations share the syncs of one folder: each caller gets the result of a sync that began after
// its call, and callers that wait for the same one share it. All operations of a drive sync the staging folder, so that its
// syncs would otherwise be as many as its operations.
type sharedSync struct {
	// inProgress is a semaphore of one: it is held during a sync.
	inProgress chan struct{}

	// mu guards next, the sync that has not begun; nil: no caller waits for one.
	mu   sync.Mutex
	next *syncResult
}

// syncResult is the result of one sync; err is set before done is closed.
type syncResult struct {
	done chan struct{}
	err  error
}

func newSharedSync() *sharedSync { return &sharedSync{inProgress: make(chan struct{}, 1)} }

// do returns the error of a call of sync that began after the call of do. All callers of do pass the same function.
func (s *sharedSync) do(sync func() error) error {
	s.mu.Lock()
	if next := s.next; next != nil {
		s.mu.Unlock()
		<-next.done
		return next.err
	}
	own := &syncResult{done: make(chan struct{})}
	s.next = own
	s.mu.Unlock()

	s.inProgress <- struct{}{} // waits for the sync before this one, while other callers join
	defer func() { <-s.inProgress }()
	s.mu.Lock()
	s.next = nil // before the sync begins: it may miss the changes of callers that come later
	s.mu.Unlock()
	defer close(own.done)
	own.err = sync()
	return own.err
}

// syncStaging makes the entries of the staging folder durable.
func (d *Drive) syncStaging() error { return d.stagingSyncs.do(d.staging.Sync) }
