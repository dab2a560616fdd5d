package drive

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// driveDescriptors is how many file descriptors an open drive holds, operationDescriptors the most that one operation
	// holds beside them.
	driveDescriptors     = 4
	operationDescriptors = 4
	// defaultDescriptors are the Descriptors of Options that leave them out.
	defaultDescriptors = 4096
)

// MinDescriptors are the fewest Descriptors of Options: two sweeps of trash and two operations, each on a drive of its own.
const MinDescriptors = 4 * (driveDescriptors + operationDescriptors)

// A cache holds the open drives of a machine and counts the file descriptors that these and the operations on them may
// hold. An operation reserves its descriptors before it begins and gets the drive with them. Where they are not available,
// the drives that were not used for the longest time are evicted: their descriptors are closed and nothing of them stays
// in memory. A drive in use is never evicted. Where every open drive is in use the operation waits its turn, in the order
// of arrival.
type cache struct {
	mu sync.Mutex
	// capacity is how many descriptors there may be, reserved how many of them are spoken for.
	capacity, reserved int
	closed             bool
	drives             map[string]*Drive
	newDrive           func(workspaceID string) *Drive
	// idle are the open drives that nobody uses, the one that was used longest ago first.
	idle list.List
	// waiting are the reservations that have to wait, in the order of arrival.
	waiting list.List
	metrics *metrics
}

// A reservation is of the descriptors of one operation.
type reservation struct {
	workspaceID string
	// drive is set when the reservation is granted, unless workspaceID is empty.
	drive *Drive
	// opens tells that whoever holds the reservation has to open the drive's files.
	opens bool
	// decided is closed when the reservation is granted or, as refused tells, will not be.
	decided chan struct{}
	refused bool
}

// reserve waits until an operation on a workspace's drive may hold its descriptors; an empty workspaceID is for one that
// uses no open drive. It is Unavailable after patience, and when the drives are closing.
func (c *cache) reserve(ctx context.Context, workspaceID string) (*reservation, error) {
	r := &reservation{workspaceID: workspaceID, decided: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosing
	}
	if c.waiting.Len() == 0 && c.grant(r) {
		c.mu.Unlock()
		return r, nil
	}
	place := c.waiting.PushBack(r)
	c.mu.Unlock()

	timer := time.NewTimer(patience)
	defer timer.Stop()
	var err error
	select {
	case <-r.decided:
		return r.outcome()
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errInUse
	}
	c.mu.Lock()
	select {
	case <-r.decided:
		c.mu.Unlock()
		return r.outcome()
	default:
	}
	c.waiting.Remove(place)
	c.grantWaiting() // those behind it may need fewer descriptors
	c.mu.Unlock()
	return nil, err
}

// outcome returns a reservation that is decided, or errClosing.
func (r *reservation) outcome() (*reservation, error) {
	if r.refused {
		return nil, errClosing
	}
	return r, nil
}

// grant reserves the descriptors of r, evicting idle drives where it has to. It returns false, and evicts no more than it
// could, where too many drives are in use. The caller holds mu.
func (c *cache) grant(r *reservation) bool {
	drive, need := c.drives[r.workspaceID], operationDescriptors
	opens := r.workspaceID != "" && (drive == nil || !drive.isOpen && drive.opening == nil)
	if opens {
		need += driveDescriptors
	}
	for victim := c.idle.Front(); c.reserved+need > c.capacity; {
		if victim == nil {
			return false
		}
		next := victim.Next()
		if victim.Value != drive {
			c.evict(victim.Value.(*Drive))
		}
		victim = next
	}
	c.reserved += need
	if r.workspaceID == "" {
		return true
	}
	if drive == nil {
		drive = c.newDrive(r.workspaceID)
		c.drives[r.workspaceID] = drive
	}
	if opens {
		drive.opening = make(chan struct{})
	}
	if drive.idle != nil {
		c.idle.Remove(drive.idle)
		drive.idle = nil
	}
	drive.uses++
	r.drive, r.opens = drive, opens
	return true
}

// grantWaiting grants the reservations that have waited longest. The caller holds mu.
func (c *cache) grantWaiting() {
	for first := c.waiting.Front(); first != nil && c.grant(first.Value.(*reservation)); first = c.waiting.Front() {
		c.waiting.Remove(first)
		close(first.Value.(*reservation).decided)
	}
}

// release ends a reservation.
func (c *cache) release(r *reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved -= operationDescriptors
	if drive := r.drive; drive != nil {
		drive.uses--
		c.rest(drive)
	}
	c.grantWaiting()
}

// opened tells how the opening of a drive's files ended, which the grant of r had asked for.
func (c *cache) opened(r *reservation, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	drive := r.drive
	drive.isOpen, drive.openError = err == nil, err
	close(drive.opening)
	drive.opening = nil
	if err != nil {
		c.reserved -= driveDescriptors
		return
	}
	c.metrics.open.Inc()
}

// pin keeps a drive's locks and the ids of its operations in memory while its files may be closed. The caller uses it.
func (c *cache) pin(drive *Drive) {
	c.mu.Lock()
	defer c.mu.Unlock()
	drive.pinned++
}

func (c *cache) unpin(drive *Drive) {
	c.mu.Lock()
	defer c.mu.Unlock()
	drive.pinned--
	c.rest(drive)
}

// rest makes a drive that is no longer used idle, or forgets it where its files are closed. The caller holds mu.
func (c *cache) rest(drive *Drive) {
	switch {
	case c.closed || drive.uses > 0 || drive.idle != nil:
	case drive.isOpen:
		drive.idle = c.idle.PushBack(drive)
	case drive.pinned == 0:
		delete(c.drives, drive.workspaceID)
	}
}

// evict closes the files of an idle drive. The caller holds mu.
func (c *cache) evict(drive *Drive) {
	c.idle.Remove(drive.idle)
	drive.idle, drive.isOpen = nil, false
	if err := errors.Join(drive.closeFiles()...); err != nil {
		drive.drives.log.Error("cannot close a drive's files", "workspace", drive.workspaceID, "error", err)
	}
	drive.forgetFiles()
	c.reserved -= driveDescriptors
	c.metrics.open.Dec()
	c.metrics.evicted.Inc()
	c.rest(drive)
}

// stop refuses every later reservation and those that wait. Drives stay open for the operations under way.
func (c *cache) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for first := c.waiting.Front(); first != nil; first = c.waiting.Front() {
		r := c.waiting.Remove(first).(*reservation)
		r.refused = true
		close(r.decided)
	}
}

// closeFiles closes the files of every open drive, used or not.
func (c *cache) closeFiles() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, drive := range c.drives {
		if drive.isOpen {
			drive.isOpen = false
			errs = append(errs, drive.closeFiles()...)
		}
	}
	return errors.Join(errs...)
}
