// Package quota limits the bytes and files of drives, and keeps bytes and files (inodes) of the disk free for the journal.
//
// There are two ways to know the use of a drive:
//
//   - The kernel counts it, on an ext4 or xfs file system with project quotas (mounted with prjquota). A drive that is empty
//     when the server sees it first becomes a project of its own. If quotas are enforced too, the kernel refuses the writes
//     of processes that exceed them, and Check has nothing to do.
//   - Otherwise the drive is walked. Between two walks, the drive's own operations add the space that they write to the result of the last
//     walk. A drive is walked for a small share of the time, so that the result may be old. So the server cannot
//     prevent that processes exceed the quota, but it ends them soon (see Check). While processes run, an operation that might
//     not fit, because the file system has grown since the last walk, waits for the next one.
//
// # What counts
//
// The space that files occupy on the disk, and not their length: a sparse file counts with its blocks. Everything below the
// drive's folder counts, so also uploads that are not finished, and deleted entries that are not yet swept. Files, folders and links
// count as files. If the whole file system has fewer files than a drive may have, the drive need not be walked for them.
//
// # The share of a person
//
// The drives of all workspaces with the same billing user, the payer, share the disk as one drive: many workspaces bring no more than one.
// The disk has a reserve. Payers with a small use may have a part of the reserve. A drive is refused when the free space is below a
// threshold that grows with the use of the payer (band): from the lower threshold, for a 512th of the disk or less, to the reserve, for
// half of the disk or more. So no payer is refused because another payer has grown, alone a payer may have everything but the reserve, and
// no number of payers has to be known. The use is measured only while less than the reserve is free, and only as far as it decides. The
// bytes of the workspaces in the journal belong to the use.
//
// Processes end by the same thresholds. They write gigabytes between two calls of Check, so that the free space is watched (Watch), they are
// suspended while a decision about them waits (Check), and their writes until then are taken from the rest of the reserve below the lower
// threshold. Payers with less are refused a moment later than payers with more (requireShare): the processes of payers with more may hold
// removed files until they end. No decision below the reserve waits for the walks of other payers, and a payer has more than the share if a
// walk of the payer's drives fails.
package quota

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/volume"
)

// Full is the code of errors for a drive or disk that has no space.
const Full = entity.InsufficientStorage

// A Limit is the most that a drive may use. 0 means no limit.
type Limit struct{ Bytes, Files uint64 }

// Usage is the space and the files that a drive uses, or that an operation needs.
type Usage struct{ Bytes, Files uint64 }

func (u Usage) plus(v Usage) Usage { return Usage{u.Bytes + v.Bytes, u.Files + v.Files} }

// half returns half of a limit.
func half(l Limit) Limit { return Limit{(l.Bytes + 1) / 2, (l.Files + 1) / 2} }

// exceeds reports whether the usage is more than the limit.
func (u Usage) exceeds(l Limit) bool {
	return l.Bytes > 0 && u.Bytes > l.Bytes || l.Files > 0 && u.Files > l.Files
}

// Options are the arguments of New.
type Options struct {
	// Dir is the folder that holds one folder for each workspace.
	Dir string
	// Limit is the limit of each drive.
	Limit Limit
	// Reserve is the space of the file system that drives leave free, apart from small drives, and Least the part of the reserve
	// that no drive may take.
	Reserve, Least Usage
	// Measure walks the folder of a workspace and returns its use. If enough is not nil, the walk calls it from time to time with the use
	// so far, and returns the use so far as soon as enough returns true.
	Measure func(ctx context.Context, workspaceID string, enough func(Usage) bool) (Usage, error)
	// Journal returns the bytes that the journal has of a workspace, which belong to its share of the disk. nil: none.
	Journal func(workspaceID string) uint64
	// Payer returns the payer of a workspace. A workspace never gets another payer. Payer returns NotFound if there is no such workspace.
	// nil: each workspace has a payer of its own.
	Payer func(ctx context.Context, workspaceID string) (Payer, error)
	// Refused is called with the reason of each refusal. nil: nothing is called.
	Refused func(reason string)
	Log     *slog.Logger
}

// The reasons of refusals: the limit of the drive is exhausted; the disk is nearly full and the payer uses more than the share; the disk
// is full for all.
const (
	ReasonQuota = "quota"
	ReasonShare = "share"
	ReasonDisk  = "disk"
)

// Reasons are all reasons of refusals.
var Reasons = []string{ReasonQuota, ReasonShare, ReasonDisk}

// A Limiter limits the drives below one folder. All methods may be called concurrently.
type Limiter struct {
	options Options
	kernel  kernel
	// statfs measures the file system of a folder. Tests replace it.
	statfs func(dir string) (volume.Usage, error)
	// readProject reads the use of a project. Tests replace it.
	readProject func(dir string, project uint32) (Usage, error)
	// turn is for how long a drive waits for each step before it is refused; see eachTurn.
	turn time.Duration
	// walks limits the walks at the same time. It does not limit walks that decide below the reserve (shareUse), which wait for no other
	// drive.
	walks chan struct{}

	// recent is the last measurement of CheckJournal.
	recent atomic.Pointer[recentDisk]

	mu       sync.Mutex
	accounts map[string]*account
	// payers are by id.
	payers, payerByWorkspace map[string]*payer
	// watchers are the channels that Watch has returned, and stopWatch ends the measurements for them.
	watchers  map[chan struct{}]bool
	stopWatch context.CancelFunc
}

// New returns a limiter. It detects the project quotas of the folder's file system.
func New(o Options) *Limiter {
	return &Limiter{
		options: o, kernel: detect(o.Dir), statfs: volume.Measure, readProject: readProject, turn: eachTurn, walks: make(chan struct{}, 2), accounts: map[string]*account{},
		payers: map[string]*payer{}, payerByWorkspace: map[string]*payer{}, watchers: map[chan struct{}]bool{},
	}
}

// An account has the measured use of one drive.
type account struct {
	// measuring is a semaphore of one for measurements.
	measuring chan struct{}

	mu sync.Mutex
	// project is the kernel's id of the drive; 0: it is walked, or opened has not been called.
	project  uint32
	isOpened bool
	// used is the result of the last measurement; added is the sum of the grants since it began.
	used, added Usage
	// measured is when the last measurement ended; zero: there is none. took is how long it took, and free the free space of
	// the disk at that time.
	measured time.Time
	took     time.Duration
	free     volume.Usage
	// checked is when Check was last called, because processes are about to run or do.
	checked time.Time
}

func (l *Limiter) account(workspaceID string) *account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[workspaceID]
	if a == nil {
		a = &account{measuring: make(chan struct{}, 1)}
		l.accounts[workspaceID] = a
	}
	return a
}

// isLimited reports whether drives have a limit.
func (l *Limiter) isLimited() bool { return l.options.Limit != Limit{} }

const (
	// share is the inverse of the share of time in which a drive is walked, and urgentShare if the disk has lost more space
	// since the last walk than the drive may use.
	share, urgentShare = 20, 4
	// checkEvery is the least time between two walks of Check.
	checkEvery = 2 * time.Second
	// freshFor is how long Space returns the result of a walk.
	freshFor = time.Minute
	// staleAfter is the age of a walk at which a drive is walked again though the use of the disk is the same.
	staleAfter = 10 * time.Minute
	// runningFor is how long processes may run after Check: Check is called every second while they run.
	runningFor = 3 * time.Second
	// longestWait limits how long an operation waits until a drive may be walked again.
	longestWait = 10 * time.Second
)

// Require grants an operation the space and the files that it needs on a drive. It returns Full if the drive would exceed its limit, or the disk
// would have too little free space; the errors of Measure; and ctx's error. The grant counts until the drive is measured again.
func (l *Limiter) Require(ctx context.Context, workspaceID string, need Usage) error {
	return l.allow(ctx, workspaceID, need, need)
}

// Fits returns the error of Require if Require would refuse need now. It grants nothing.
func (l *Limiter) Fits(ctx context.Context, workspaceID string, need Usage) error {
	return l.allow(ctx, workspaceID, need, Usage{})
}

func (l *Limiter) allow(ctx context.Context, workspaceID string, need, granted Usage) error {
	d, err := l.requireShare(ctx, workspaceID, need, goOn)
	if err != nil || !l.isLimited() {
		return err
	}
	a := l.account(workspaceID)
	isCounted := l.isCounted(a, workspaceID)
	if !l.options.Limit.mayExceed(d.Usage, need) {
		return nil
	}
	mayHaveGrown := !isCounted && a.mayHaveGrown()
	if mayHaveGrown && !a.fits(need, half(l.options.Limit)) { // space that others free hides the writes of processes
		if err := l.measure(ctx, a, workspaceID, 0); err != nil {
			return err
		}
		if d, err = l.requireShare(ctx, workspaceID, need, goOn); err != nil { // space that others have freed meanwhile is not pending
			return err
		}
	}
	pending := Usage{}
	if mayHaveGrown {
		pending = a.grown(d.Usage)
	}
	if !isCounted && a.fits(need.plus(pending), l.options.Limit) && a.grant(need, granted, l.options.Limit) {
		return nil
	}
	if pending == (Usage{}) {
		err = l.measure(ctx, a, workspaceID, 0)
	} else {
		err = l.remeasure(ctx, a, workspaceID)
	}
	if err != nil {
		return err
	}
	if !a.grant(need, granted, l.options.Limit) {
		return l.errExceeded()
	}
	return nil
}

// fits reports whether need is within the limit.
func (a *account) fits(need Usage, limit Limit) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.used.plus(a.added).plus(need).exceeds(limit)
}

// grant adds granted to the use of the drive and returns true if need is within the limit. It returns false if the drive was
// never measured.
func (a *account) grant(need, granted Usage, limit Limit) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.measured.IsZero() || a.used.plus(a.added).plus(need).exceeds(limit) {
		return false
	}
	a.added = a.added.plus(granted)
	return true
}

// RequireReserve returns Full unless the disk keeps the whole reserve free beside the bytes that an operator lets the server write there.
func (l *Limiter) RequireReserve(need Usage) error {
	d, err := l.measureDisk()
	if err != nil || d.isAbove(need) {
		return err
	}
	return l.refuse(ReasonDisk, entity.Errorf(Full, "the disk of the data directory would have less free space than the reserve of the drives, %d bytes and %d files",
		d.bytes.high, d.files.high))
}

// RequireFree returns Full if the disk has no space for the need of a drive, whatever the limit of the drive, in the same way as Require.
func (l *Limiter) RequireFree(ctx context.Context, workspaceID string, need Usage) error {
	_, err := l.requireShare(ctx, workspaceID, need, goOn)
	return err
}

// RequireLimit returns Full if the limit of a drive is less than the use that measure returns: the use after another tree has
// replaced the tree of the drive. links is the number of names of files in that tree beyond the first names. They count as files
// unless the kernel counts the use of the drive. RequireLimit grants nothing, does not call measure without a limit, and returns the
// errors of measure.
func (l *Limiter) RequireLimit(workspaceID string, links uint64, measure func() (Usage, error)) error {
	if !l.isLimited() {
		return nil
	}
	used, err := measure()
	if err != nil {
		return err
	}
	if l.isCounted(l.account(workspaceID), workspaceID) {
		used.Files -= min(links, used.Files)
	}
	if !used.exceeds(l.options.Limit) {
		return nil
	}
	refusal := entity.Errorf(Full, "the drive would have %s, which is more than its quota of %s", Limit(used), l.options.Limit)
	return l.refuse(ReasonQuota, refusal)
}

// isShort reports whether less than reserve would be free after need was taken.
func isShort(free, reserve, need uint64) bool { return free < reserve || free-reserve < need }

// mayExceed reports whether a drive with so much more might exceed the limit, as far as the use of the whole file system tells: a
// drive has no more files than its file system.
func (l Limit) mayExceed(free volume.Usage, need Usage) bool {
	return l.Bytes > 0 || l.Files > 0 && isShort(l.Files, need.Files, free.UsedFiles)
}

func (l *Limiter) errExceeded() error {
	return l.refuse(ReasonQuota, entity.Errorf(Full, "the drive's quota of %s is exhausted; delete something", l.options.Limit))
}

// refuse counts a refusal and returns its error.
func (l *Limiter) refuse(reason string, err error) error {
	if l.options.Refused != nil {
		l.options.Refused(reason)
	}
	return err
}

// String returns a text such as "1000000 bytes and 1000 files".
func (l Limit) String() string {
	switch {
	case l.Files == 0:
		return fmt.Sprintf("%d bytes", l.Bytes)
	case l.Bytes == 0:
		return fmt.Sprintf("%d files", l.Files)
	}
	return fmt.Sprintf("%d bytes and %d files", l.Bytes, l.Files)
}

// Space returns the bytes that a drive uses, and the bytes that it may still use. Without a limit on bytes, used is the use of
// the whole file system. It returns the errors of Measure, and ctx's error. The result may be a minute old.
func (l *Limiter) Space(ctx context.Context, workspaceID string) (used, available uint64, err error) {
	d, err := l.measureDisk()
	if err != nil {
		return 0, 0, err
	}
	threshold := d.bytes.high
	if !d.isAbove(Usage{}) {
		var of Usage
		if of, d, err = l.shareUse(ctx, workspaceID, d, Usage{}, goOn); err != nil {
			return 0, 0, err
		}
		threshold = d.bytes.threshold(of.Bytes, d.TotalBytes)
	}
	used, available = d.UsedBytes, d.FreeBytes-min(d.FreeBytes, threshold)
	if l.options.Limit.Bytes == 0 {
		return used, available, nil
	}
	a := l.account(workspaceID)
	pause := freshFor
	if l.isCounted(a, workspaceID) {
		pause = 0
	}
	if err := l.measure(ctx, a, workspaceID, pause); err != nil {
		return 0, 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	used = a.used.plus(a.added).Bytes
	return used, min(available, l.options.Limit.Bytes-min(used, l.options.Limit.Bytes)), nil
}

// Total returns the bytes that a drive may use at the most: the bytes of its limit, or else the bytes of the file system.
func (l *Limiter) Total() (uint64, error) {
	if l.options.Limit.Bytes > 0 {
		return l.options.Limit.Bytes, nil
	}
	free, err := l.statfs(l.options.Dir)
	return free.TotalBytes, err
}

// measure measures a drive again, unless it was measured within pause, or its walks have taken their share of the time, or the
// use of the disk has not changed since the last walk and nothing was granted since.
func (l *Limiter) measure(ctx context.Context, a *account, workspaceID string, pause time.Duration) error {
	return l.measureNow(ctx, a, workspaceID, func() bool { return l.isDue(a, pause, false) })
}

// measureNow measures a drive if the kernel counts it, or if isDue returns true.
func (l *Limiter) measureNow(ctx context.Context, a *account, workspaceID string, isDue func() bool) error {
	isCounted := l.isCounted(a, workspaceID)
	if !isCounted && !isDue() {
		return nil
	}
	if err := occupy(ctx, a.measuring); err != nil {
		return err
	}
	defer func() { <-a.measuring }()
	if isCounted {
		return l.count(a)
	}
	if !isDue() { // another caller has measured
		return nil
	}
	if err := occupy(ctx, l.walks); err != nil {
		return err
	}
	defer func() { <-l.walks }()
	return l.walk(ctx, a, workspaceID)
}

// occupy acquires a place of a semaphore, or returns ctx's error.
func occupy(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Limiter) walk(ctx context.Context, a *account, workspaceID string) error {
	began := time.Now()
	free, err := l.statfs(l.options.Dir)
	if err != nil {
		return err
	}
	a.mu.Lock()
	granted := a.added
	a.mu.Unlock()
	used, err := l.options.Measure(ctx, workspaceID, nil)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used = used
	// Operations that were granted something while the drive was walked still count.
	a.added = Usage{a.added.Bytes - granted.Bytes, a.added.Files - granted.Files}
	a.measured, a.took, a.free = time.Now(), time.Since(began), free
	return nil
}

// isDue reports whether a drive is to be walked; isUrgent if that is needed to decide about an operation.
func (l *Limiter) isDue(a *account, pause time.Duration, isUrgent bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.measured.IsZero() {
		return true
	}
	age := time.Since(a.measured)
	if age < max(pause, (urgentShare-1)*a.took) {
		return false
	}
	free, err := l.statfs(l.options.Dir)
	switch {
	case err != nil || age > staleAfter:
		return true
	case free == a.free && a.added == (Usage{}): // a grant without a trace was not used, or is used no more
		return false
	case l.options.Limit.Bytes > 0 && free.FreeBytes+l.options.Limit.Bytes < a.free.FreeBytes+a.used.Bytes,
		l.options.Limit.Files > 0 && free.FreeFiles != volume.Unlimited && free.FreeFiles+l.options.Limit.Files < a.free.FreeFiles+a.used.Files:
		return true
	}
	return isUrgent || age >= (share-1)*a.took
}
