package quota

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/retry"
	"github.com/atelier-run/atelier/volume"
)

// A band is the free space of one resource of the disk, bytes or files, in which the drives of payers with a small use grow and the drives of
// payers with a large use do not. Above high, every drive may grow. Below low, no drive may.
type band struct{ low, high uint64 }

const (
	// shareSteps is the number of times that the use of a payer is halved, from half of the disk, until the payer may use the whole band.
	shareSteps = 8
	// reservedShare is the inverse of the share of the disk's files that the reserve has at least, and maxReservedFiles limits that
	// share: a process makes a thousand files in a few milliseconds.
	reservedShare    = 16
	maxReservedFiles = 64 << 10
	// nearBands is the number of bands above the reserve in which drives with processes are measured (anticipate).
	nearBands = 2
	// refresh is the number of files that are walked until the disk is measured again.
	refresh = 1024
	// eachTurn is how long a drive waits for each step of shareSteps before it is refused in the band. Meanwhile the processes of the
	// payers with more end; they may hold removed files.
	eachTurn = 25 * time.Millisecond
)

// steps returns how many times a use can be doubled until it is half of total, at most shareSteps.
func steps(used, total uint64) float64 {
	if used == 0 {
		return shareSteps
	}
	return min(max(math.Log2(float64(total)/2/float64(used)), 0), shareSteps)
}

// threshold returns the free space below which a payer with a use of the total is refused. It grows with the use: so the space between
// the thresholds of two payers is left to the payer that uses less, however much the other one wants.
func (b band) threshold(used, total uint64) uint64 {
	return b.high - min(uint64(float64(b.high-b.low)*steps(used, total)/shareSteps), b.high-b.low)
}

// A disk has the bands of the two resources of a file system, and its use.
type disk struct {
	volume.Usage
	bytes, files band
}

// bandOf returns the band of a reserve. least is the part of the reserve that no payer may take. A quarter of the rest stays free below
// the band, for the writes of processes until they have ended.
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

// isAbove reports whether need leaves the reserve free, so that any drive may have it.
func (d disk) isAbove(need Usage) bool {
	return !isShort(d.FreeBytes, d.bytes.high, need.Bytes) && !isShort(d.FreeFiles, d.files.high, need.Files)
}

// isBelow reports whether need does not leave the lower threshold free, so that no drive may have it.
func (d disk) isBelow(need Usage) bool {
	return isShort(d.FreeBytes, d.bytes.low, need.Bytes) || isShort(d.FreeFiles, d.files.low, need.Files)
}

// admits reports whether a payer with this use may have need.
func (d disk) admits(used, need Usage) bool {
	after := used.plus(need)
	return !isShort(d.FreeBytes, d.bytes.threshold(after.Bytes, d.TotalBytes), need.Bytes) &&
		!isShort(d.FreeFiles, d.files.threshold(after.Files, d.totalFiles()), need.Files)
}

// steps returns the steps of the resource that a payer uses more of.
func (d disk) steps(used Usage) float64 {
	return min(steps(used.Bytes, d.TotalBytes), steps(used.Files, d.totalFiles()))
}

// requireShare returns Full if the disk has no space for the need of a drive: below the reserve, the drives of payers with a large use
// are refused, and the drives of payers with a small use go on until the lower threshold, where no use is measured. It returns the last
// measurement of the disk; the errors of Measure for a drive that does not exist; and ctx's error.
// It calls wait before it waits for a walk or for its turn.
func (l *Limiter) requireShare(ctx context.Context, workspaceID string, need Usage, wait func()) (disk, error) {
	d, err := l.measureDisk()
	if err != nil || d.isAbove(need) {
		return d, err
	}
	if d.isBelow(need) {
		wait()
		if d, err = l.waitTurn(ctx, d, l.payerOf(workspaceID).lastUse()); err != nil || d.isAbove(need) {
			return d, err
		}
		if d.isBelow(need) {
			return d, l.errDisk(d, need)
		}
	}
	used, d, err := l.shareUse(ctx, workspaceID, d, need, wait)
	if err != nil || d.admits(used, need) {
		return d, err
	}
	wait()
	if d, err = l.waitTurn(ctx, d, used); err != nil || d.admits(used, need) {
		return d, err
	}
	if d.isBelow(need) {
		return d, l.errDisk(d, need)
	}
	return d, l.refuse(ReasonShare, errShare(d.admits(Usage{used.Bytes, 0}, need)))
}

// waitTurn waits while the processes of payers with more than the use end, and measures the disk again.
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

// errShare returns the error for a workspace if its payer has the share of the disk: the share of the files, or else of the bytes. The text
// does not depend on the number of the payer's workspaces, because members of a workspace are not to learn of other workspaces.
func errShare(ofFiles bool) error {
	return entity.Errorf(Full, "%s, and this workspace has its share, together with any other workspaces of its billing user: "+
		"what is left is for people with less; delete something", shortage(!ofFiles))
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
