package drive

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/atelier-run/atelier/limit"
)

const (
	// driveDescriptors is the number of file descriptors that an open drive holds.
	driveDescriptors = 4
	// operationDescriptors is the number of file descriptors that one operation holds at most, in addition.
	operationDescriptors = 4
	// defaultDescriptors is the default of Options.Descriptors.
	defaultDescriptors = 4096
)

// MinDescriptors is the least value of Options.Descriptors. It is enough for two sweeps and two operations, each on a drive
// of its own.
const MinDescriptors = 4 * (driveDescriptors + operationDescriptors)

// A cache holds the open drives of a machine and accounts for the file descriptors that the drives and the operations on
// them hold. An operation reserves its descriptors before it begins and gets the drive with them. If too few descriptors
// are free, the least recently used idle drives are evicted: their files are closed and their memory is freed. A drive in
// use is never evicted. If all open drives are in use, the operation waits in a queue, first in, first out. Operations on a drive that has
// its share of the descriptors wait, too, and later operations on other drives overtake them; see hasShare.
type cache struct {
	mu sync.Mutex
	// capacity is the total number of descriptors, reserved the number in use by drives and reservations.
	capacity, reserved int
	closed             bool
	drives             map[string]*Drive
	newDrive           func(workspaceID string) *Drive
	// idle lists the open drives that are not in use, least recently used first.
	idle list.List
	// waiting is the queue of reservations.
	waiting list.List
	metrics *metrics
}

// A reservation holds the descriptors of one operation.
type reservation struct {
	workspaceID string
	// drive is set when the reservation is granted, unless workspaceID is empty.
	drive *Drive
	// mustOpen is set if the holder of the reservation has to open the drive's files and call finishOpening.
	mustOpen bool
	// decided is closed when the reservation is granted or refused.
	decided chan struct{}
	refused bool
}

// reserve waits until the descriptors for an operation on a workspace's drive are available; an empty workspaceID reserves
// descriptors without a drive. It returns ctx's error, or Unavailable after waitTimeout and when the drives are closing.
// The caller calls release when the operation has ended.
func (c *cache) reserve(ctx context.Context, workspaceID string) (*reservation, error) {
	r := &reservation{workspaceID: workspaceID, decided: make(chan struct{})}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosing
	}
	position := c.waiting.PushBack(r)
	c.grantWaiting()
	c.mu.Unlock()
	select {
	case <-r.decided:
		return r.outcome()
	default:
	}

	timer := time.NewTimer(waitTimeout)
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
	c.waiting.Remove(position)
	c.grantWaiting() // the reservations behind it may need fewer descriptors
	c.mu.Unlock()
	return nil, err
}

// outcome returns a decided reservation, or errClosing if it was refused.
func (r *reservation) outcome() (*reservation, error) {
	if r.refused {
		return nil, errClosing
	}
	return r, nil
}

// grant takes the descriptors of r from the capacity and evicts idle drives as needed. It returns false if too many drives
// are in use; idle drives may have been evicted nevertheless. The caller holds mu.
func (c *cache) grant(r *reservation) bool {
	drive, need := c.drives[r.workspaceID], operationDescriptors
	mustOpen := r.workspaceID != "" && (drive == nil || !drive.isOpen && drive.opening == nil)
	if mustOpen {
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
	if mustOpen {
		drive.opening = make(chan struct{})
	}
	if drive.idle != nil {
		c.idle.Remove(drive.idle)
		drive.idle = nil
	}
	drive.uses++
	r.drive, r.mustOpen = drive, mustOpen
	return true
}

// grantWaiting grants reservations from the front of the queue, as many as possible. The caller holds mu.
func (c *cache) grantWaiting() {
	for next := c.waiting.Front(); next != nil; {
		position, r := next, next.Value.(*reservation)
		next = next.Next()
		if c.hasShare(r) {
			continue
		}
		if !c.grant(r) {
			return
		}
		c.waiting.Remove(position)
		close(r.decided)
	}
}

// hasShare reports whether the operations on the drive of a reservation have their share of the descriptors, as limit.Shares divides
// slots: one drive alone can have four of five, and the operations of other drives find some free, however long the first ones last. The
// reserve for drives without operations has room for at least one operation. The caller holds mu.
func (c *cache) hasShare(r *reservation) bool {
	drive := c.drives[r.workspaceID]
	if r.workspaceID == "" || drive == nil || drive.uses == 0 {
		return false
	}
	common := c.capacity - max(c.capacity/limit.ReservedPart, driveDescriptors+operationDescriptors)
	used := c.reserved - c.idle.Len()*driveDescriptors
	return drive.uses*operationDescriptors >= limit.Elasticity*(common-used)
}

// release ends a reservation.
func (c *cache) release(r *reservation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved -= operationDescriptors
	if drive := r.drive; drive != nil {
		drive.uses--
		c.retire(drive)
	}
	c.grantWaiting()
}

// finishOpening records the result of opening a drive's files, for a reservation with mustOpen, and wakes the reservations
// that wait for it.
func (c *cache) finishOpening(r *reservation, err error) {
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

// pin keeps a drive's path locks and the ids of its operations in memory until unpin, even if its files are closed. The
// caller holds a reservation of the drive.
func (c *cache) pin(drive *Drive) {
	c.mu.Lock()
	defer c.mu.Unlock()
	drive.pinned++
}

func (c *cache) unpin(drive *Drive) {
	c.mu.Lock()
	defer c.mu.Unlock()
	drive.pinned--
	c.retire(drive)
}

// retire moves a drive that is not in use to the idle list, or removes it from memory if its files are closed and it is not
// pinned. The caller holds mu.
func (c *cache) retire(drive *Drive) {
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
	c.retire(drive)
}

// stop refuses the waiting reservations and all later ones. Drives stay open for the operations in flight.
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

// closeFiles closes the files of every open drive, in use or not.
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
