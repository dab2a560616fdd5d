package quota

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/volume"
)

// A band is the free space of one resource of the disk, bytes or files, in which the drives of small workspaces grow and those of large
// workspaces do not. Above high, every drive may grow. Below low, no drive may.
type band struct{ low, high uint64 }

const (
	// shareSteps is the number of times that the use of a drive is halved, from half of the disk, until the drive may use the whole band.
	shareSteps = 8
	// reservedShare is the inverse of the share of the disk's files that the reserve has at least, and maxReservedFiles limits that
	// share: a process makes a thousand files in a few milliseconds.
	reservedShare    = 16
	maxReservedFiles = 64 << 10
	// nearBands is the number of bands above the reserve in which drives with processes are measured (anticipate).
	nearBands = 2
	// refresh is the number of files that are walked until the disk is measured again.
	refresh = 1024
	// eachTurn is the time for which a drive waits for each step of shareSteps before it is refused in the band: meanwhile the processes of
	// the drives with more end, which may hold removed files.
	eachTurn = 25 * time.Millisecond
)

// steps returns how many times a use can be doubled until it is half of total, at most shareSteps.
func steps(used, total uint64) float64 {
	if used == 0 {
		return shareSteps
	}
	return min(max(math.Log2(float64(total)/2/float64(used)), 0), shareSteps)
}

// threshold returns the free space below which a drive with a use of the total is refused. It grows with the use: so the space between
// the thresholds of two drives is left to the drive that uses less, however much the other one wants.
func (b band) threshold(used, total uint64) uint64 {
	return b.high - min(uint64(float64(b.high-b.low)*steps(used, total)/shareSteps), b.high-b.low)
}

// A disk has the bands of the two resources of a file system, and its use.
type disk struct {
	volume.Usage
	bytes, files band
}

// bandOf returns the band between a reserve and what nobody may take from the reserve. A quarter of the reserve stays free below the band,
// for what is written until processes have ended.
func bandOf(reserve, least uint64) band {
	least = min(least, reserve)
	return band{low: least + (reserve-least)/4, high: reserve}
}

func (l *Limiter) measureDisk() (d disk, err error) {
	if d.Usage, err = l.statfs(l.options.Dir); err != nil {
		return d, fmt.Errorf("quota: %w", err)
	}
	reserve, least := l.options.Reserve, l.options.Least
	if total := d.totalFiles(); reserve.Files > 0 && total != volume.Unlimited {
		reserve.Files = max(reserve.Files, min(total/reservedShare, maxReservedFiles))
	}
	d.bytes, d.files = bandOf(reserve.Bytes, least.Bytes), bandOf(reserve.Files, least.Files)
	return d, nil
}

// isNear reports whether the disk is soon nearly full.
func (d disk) isNear() bool { return d.FreeBytes < d.bytes.near() || d.FreeFiles < d.files.near() }

// near returns the free space below which processes may soon reach the reserve.
func (b band) near() uint64 { return b.high + nearBands*(b.high-b.low) }

// totalFiles returns the number of files that the file system may have, or volume.Unlimited.
func (d disk) totalFiles() uint64 {
	if d.FreeFiles == volume.Unlimited || d.UsedFiles == volume.Unlimited {
		return volume.Unlimited
	}
	return d.FreeFiles + d.UsedFiles
}

// isAbove reports whether what is needed leaves the reserve free, so that any drive may have it.
func (d disk) isAbove(need Usage) bool {
	return !isShort(d.FreeBytes, d.bytes.high, need.Bytes) && !isShort(d.FreeFiles, d.files.high, need.Files)
}

// isBelow reports whether what is needed does not leave the lower threshold free, so that no drive may have it.
func (d disk) isBelow(need Usage) bool {
	return isShort(d.FreeBytes, d.bytes.low, need.Bytes) || isShort(d.FreeFiles, d.files.low, need.Files)
}

// admits reports whether a drive that uses so much may have what it needs.
func (d disk) admits(used, need Usage) bool {
	after := used.plus(need)
	return !isShort(d.FreeBytes, d.bytes.threshold(after.Bytes, d.TotalBytes), need.Bytes) &&
		!isShort(d.FreeFiles, d.files.threshold(after.Files, d.totalFiles()), need.Files)
}

// steps returns the steps of the resource of which a drive uses more.
func (d disk) steps(used Usage) float64 {
	return min(steps(used.Bytes, d.TotalBytes), steps(used.Files, d.totalFiles()))
}

// requireShare returns Full if the disk has no space for what a drive needs: below the reserve, drives with a large use are refused, and
// drives with a small use go on until the lower threshold, where no use is measured. It returns the use of the disk; the errors of Measure
// for a drive that does not exist; and ctx's error.
// It calls wait before it waits for a walk or for its turn.
func (l *Limiter) requireShare(ctx context.Context, workspaceID string, need Usage, wait func()) (volume.Usage, error) {
	d, err := l.measureDisk()
	if err != nil || d.isAbove(need) {
		return d.Usage, err
	}
	if d.isBelow(need) {
		wait()
		if d, err = l.waitTurn(ctx, d, l.account(workspaceID).lastUse()); err != nil || d.isAbove(need) {
			return d.Usage, err
		}
		if d.isBelow(need) {
			return d.Usage, l.errDisk(d, need)
		}
	}
	used, err := l.shareUse(ctx, workspaceID, d, need, wait)
	if err != nil {
		return d.Usage, err
	}
	if d, err = l.measureDisk(); err != nil || d.admits(used, need) {
		return d.Usage, err
	}
	wait()
	if d, err = l.waitTurn(ctx, d, used); err != nil || d.admits(used, need) {
		return d.Usage, err
	}
	if d.isBelow(need) {
		return d.Usage, l.errDisk(d, need)
	}
	return d.Usage, l.refuse(ReasonShare, errShare(d.admits(Usage{used.Bytes, 0}, need)))
}

// waitTurn waits while the processes of drives with more than the use end, and measures the disk again.
func (l *Limiter) waitTurn(ctx context.Context, d disk, used Usage) (disk, error) {
	if wait := time.Duration(d.steps(used) * float64(l.turn)); wait > 0 {
		if !retry.Pause(ctx, wait) {
			return d, ctx.Err()
		}
	}
	return l.measureDisk()
}

// errDisk counts a refusal for a disk that is full for all, and returns its error.
func (l *Limiter) errDisk(d disk, need Usage) error {
	isBytes := isShort(d.FreeBytes, d.bytes.low, need.Bytes)
	return l.refuse(ReasonDisk, entity.Errorf(Full, "%s; tell its operator", shortage(isBytes)))
}

// recentFor is for how long CheckJournal uses a measurement of the disk.
const recentFor = 50 * time.Millisecond

// CheckJournal returns Full if a workspace may not write so many bytes to the journal, because the disk is nearly full and the workspace is
// known to have its share. It walks no drive. Its thresholds lie in the lower half of the band, so that a workspace whose uploads are refused
// can still be worked in, and those with the smallest use are never refused: the journal itself refuses what it has no space for.
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
		return nil // for all, or for nobody: then the journal refuses the change
	}
	used := l.account(workspaceID).lastUse().Bytes + need
	if l.options.Journal != nil {
		used += l.options.Journal(workspaceID)
	}
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

// lastUse returns the result of the younger one of the last measurements by walk or count and by shareUse, but nothing after Freed.
func (a *account) lastUse() Usage {
	a.mu.Lock()
	defer a.mu.Unlock()
	used, measured := a.used, a.measured
	if a.share.measured.After(measured) {
		used, measured = a.share.used, a.share.measured
	}
	if !measured.After(a.freed) {
		return Usage{}
	}
	return used
}

// Freed notes that something was deleted from a drive: what was measured before no longer refuses the workspace's changes of the journal.
func (l *Limiter) Freed(workspaceID string) {
	a := l.account(workspaceID)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.freed = time.Now()
}

// errShare returns the error for a workspace with its share of the disk: of its files, or else of its bytes.
func errShare(ofFiles bool) error {
	return entity.Errorf(Full, "%s, and this workspace has its share: what is left is for workspaces with less; delete something", shortage(!ofFiles))
}

// shortage returns the text for a disk that has too few bytes, or else too few files.
func shortage(ofBytes bool) string {
	if ofBytes {
		return "the disk of the server has too little free space"
	}
	return "the disk of the server has room for too few further files"
}

// goOn does nothing before a decision waits.
func goOn() {}

// A shareUse is what a drive was last measured to use while the disk was nearly full.
type shareUse struct {
	used Usage
	// isPartial is set if the walk ended as soon as the drive had more than its share: used is then less than the drive uses.
	isPartial bool
	// free is the use of the disk before the walk, measured the end of the walk, and took its duration.
	free     volume.Usage
	measured time.Time
	took     time.Duration
}

// shareUse returns what a drive uses as far as that decides about what the drive needs: no more than the drive uses if that is refused.
// A drive that has not been walked for long enough is walked. Between two walks, the growth of the disk limits that of the drive. A drive
// whose walk fails, or does not end before the disk is below the lower threshold, has more than its share. shareUse returns NotFound if
// there is no drive, and ctx's error. It calls wait before it waits for a walk.
func (l *Limiter) shareUse(ctx context.Context, workspaceID string, d disk, need Usage, wait func()) (Usage, error) {
	a := l.account(workspaceID)
	if l.isCounted(a, workspaceID) {
		if err := l.count(a); err != nil {
			return l.unknownUse(workspaceID, d, err), nil
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.used.plus(l.journal(workspaceID)), nil
	}
	isKnown := func() (Usage, bool) {
		return a.knownShare(d.Usage, func(used Usage) bool { return d.admits(used.plus(l.journal(workspaceID)), need) })
	}
	if used, is := isKnown(); is {
		return used.plus(l.journal(workspaceID)), nil
	}
	wait()
	deciding, stop := l.untilBelow(ctx, need)
	defer stop()
	err := occupy(deciding, a.deciding)
	if err == nil {
		defer func() { <-a.deciding }()
		used, is := isKnown()
		if !is { // or another caller has measured
			used, err = l.walkShare(deciding, a, workspaceID, d, need)
		}
		if err == nil {
			return used.plus(l.journal(workspaceID)), nil
		}
	}
	if ctx.Err() != nil || entity.HasCode(err, entity.NotFound) {
		return Usage{}, err
	}
	return l.unknownUse(workspaceID, d, err), nil
}

// journal returns what a workspace has in the journal.
func (l *Limiter) journal(workspaceID string) (used Usage) {
	if l.options.Journal != nil {
		used.Bytes = l.options.Journal(workspaceID)
	}
	return used
}

// unknownUse returns a use with which a drive is refused below the reserve, because the drive cannot be measured.
func (l *Limiter) unknownUse(workspaceID string, d disk, err error) Usage {
	l.options.Log.Warn("a drive cannot be measured, and counts as a large one while the disk is nearly full", "workspace", workspaceID, "error", err)
	return Usage{d.TotalBytes/2 + 1, d.totalFiles()/2 + 1}
}

// errBelow is the cause of the end of a context of untilBelow.
var errBelow = errors.New("the disk has fallen below the lower threshold")

// untilBelow returns a context that ends as soon as what is needed does not leave the lower threshold free.
func (l *Limiter) untilBelow(ctx context.Context, need Usage) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		for retry.Pause(ctx, watchLeast) {
			if d, err := l.measureDisk(); err == nil && d.isBelow(need) {
				cancel(errBelow)
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		group.Wait()
	}
}

// anticipate measures a drive before the disk is nearly full, so that the decision then need not wait for a walk. The walk is repeated when the
// disk has less free by half a band. A walk that goes on when the disk is nearly full is that of the decision.
func (l *Limiter) anticipate(ctx context.Context, a *account, workspaceID string, d disk) error {
	isKnown := func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		s, grown := a.share, growth(a.share.free, d.Usage)
		isRecent := grown.Bytes < (d.bytes.high-d.bytes.low)/2 && grown.Files < (d.files.high-d.files.low)/2
		return !s.measured.IsZero() && (isRecent || time.Since(s.measured) < (share-1)*s.took)
	}
	if isKnown() {
		return nil
	}
	if err := occupy(ctx, l.walks); err != nil {
		return err
	}
	defer func() { <-l.walks }()
	select {
	case a.deciding <- struct{}{}: // after the place among the walks, for which no decision waits
		defer func() { <-a.deciding }()
	default: // the drive is being walked
		return nil
	}
	if isKnown() { // another caller has measured
		return nil
	}
	_, err := l.walkShare(ctx, a, workspaceID, d, Usage{})
	return err
}

// walkShare walks a drive until it is certain that the drive may not have what it needs. The caller occupies a.deciding.
func (l *Limiter) walkShare(ctx context.Context, a *account, workspaceID string, d disk, need Usage) (Usage, error) {
	began, s, calls := time.Now(), shareUse{free: d.Usage}, 0
	journal := l.journal(workspaceID)
	var err error
	s.used, err = l.options.Measure(ctx, workspaceID, func(used Usage) bool {
		if calls++; calls%refresh == 0 { // processes go on writing
			if now, err := l.measureDisk(); err == nil {
				d = now
			}
		}
		// The rest is for the next decisions, which then need no walk either.
		least := Usage{used.Bytes - used.Bytes/16, used.Files - used.Files/16}.plus(journal)
		s.isPartial = !d.admits(least, need) || 2*used.Bytes > d.TotalBytes || 2*used.Files > d.totalFiles() // the threshold is the reserve
		return s.isPartial
	})
	if err != nil {
		return Usage{}, err
	}
	s.measured, s.took = time.Now(), time.Since(began)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.share = s
	return s.used, nil
}

// knownShare returns what a drive uses if the drive need not be walked.
func (a *account) knownShare(free volume.Usage, admits func(Usage) bool) (_ Usage, isKnown bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.share
	if s.measured.IsZero() || s.isPartial && admits(s.used) {
		return Usage{}, false
	}
	if most := s.used.plus(growth(s.free, free)); !s.isPartial && admits(most) {
		return most, true
	}
	pause := (urgentShare - 1) * s.took
	if !admits(s.used) {
		pause = (share - 1) * s.took
	}
	age := time.Since(s.measured)
	return s.used, age < pause || s.free == free && age < staleAfter
}
