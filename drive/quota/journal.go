package quota

import "time"

// recentFor is for how long CheckJournal uses a measurement of the disk.
const recentFor = 50 * time.Millisecond

// CheckJournal returns Full if a workspace may not write so many bytes to the journal, because the disk is nearly full and its payer is known to
// have the share. It does not wait. Its thresholds lie in the lower half of the band, so that work in a workspace can go on after its
// uploads are refused, and payers with the smallest use are never refused: the journal itself refuses writes that it has no space for.
//
// The use is the use that was last measured: at the latest by the next sample of a computer of the payer, which calls Space.
func (l *Limiter) CheckJournal(workspaceID string, size int) error {
	recent := l.recent.Load()
	if recent == nil || time.Since(recent.measured) > recentFor {
		d, err := l.measureDisk()
		if err != nil {
			return nil // the journal measures the disk as well
		}
		recent = &recentDisk{d, time.Now()}
		l.recent.Store(recent)
	}
	d, need := recent.disk, uint64(size)
	if !isShort(d.FreeBytes, d.bytes.high, need) || d.FreeBytes < l.options.Least.Bytes {
		return nil // for all payers, or for none: then the journal refuses the change
	}
	p := l.payerOf(workspaceID)
	if p == nil { // not looked up yet
		p = &payer{workspaceIDs: []string{workspaceID}}
	}
	used := p.lastUse().plus(l.journal(p)).Bytes + need
	half := band{low: d.bytes.low, high: d.bytes.low + (d.bytes.high-d.bytes.low)/2}
	if steps(used, d.TotalBytes) == shareSteps || !isShort(d.FreeBytes, half.threshold(used, d.TotalBytes), need) {
		return nil
	}
	return l.refuse(ReasonShare, errShare(false))
}

// A recentDisk is a measurement of the disk.
type recentDisk struct {
	disk
	measured time.Time
}

// Freed notes that something was deleted from a drive: earlier measurements no longer refuse the changes of the journal of the payer's
// workspaces.
func (l *Limiter) Freed(workspaceID string) {
	p := l.payerOf(workspaceID)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.freed = time.Now()
}
