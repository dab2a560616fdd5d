package drive

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/entity"
)

// DefaultGenerated are the names of folders with generated content. Operations below them are recorded in summaries.
var DefaultGenerated = []string{"node_modules", ".git", "target", "dist", "build", ".venv", "__pycache__", ".cache"}

// Options are the arguments of New.
type Options struct {
	// Dir is the folder that holds one folder for each workspace.
	Dir   string
	Asker entity.Asker
	// Generated are the names of folders with generated content: operations strictly below them belong to a generated tree.
	// nil: DefaultGenerated.
	Generated []string
	// Descriptors limits the file descriptors that all drives and the operations on them hold together, except for restores,
	// which hold up to four more each, and for two walks that measure drives, which hold three each. 0: 4096; smaller values are
	// raised to MinDescriptors.
	Descriptors int
	// Quota limits each drive. Reserve is the space of the file system that drives leave free; drives of workspaces with a small use may have
	// a part of the reserve. Least is the part of the reserve that no drive may have (package quota).
	Quota          quota.Limit
	Reserve, Least quota.Usage
	// Journal returns the bytes that the journal has of a workspace. They belong to its share of a disk that is nearly full. nil: none.
	Journal func(workspaceID string) uint64
	// Payer returns the billing user of a workspace. The drives of a billing user share a nearly full disk as one drive. Payer returns
	// NotFound if the workspace does not exist. nil: the drive of each workspace has a share of its own.
	Payer func(ctx context.Context, workspaceID string) (quota.Payer, error)
	// Room returns an error of code Full if a workspace has so little room in the journal that nothing may happen on its drive that is
	// recorded and cannot be refused: processes, and reads. nil: there is always room.
	Room func(workspaceID string) error
	// Log receives internal errors, which clients do not see. nil: slog.Default.
	Log *slog.Logger
}

// Drives gives access to the drives of all workspaces on this machine. It is a prometheus.Collector and safe for concurrent
// use.
type Drives struct {
	dir       string
	root      *os.Root
	asker     entity.Asker
	generated []string
	log       *slog.Logger
	metrics   *metrics
	quota     *quota.Limiter
	// holders is the argument of CountHeld.
	holders atomic.Pointer[func(workspaceID string) []int]
	room    func(workspaceID string) error
	// sweepSlots limits how many drives delete their trash at the same time.
	sweepSlots chan struct{}
	// copySlots and countSlots limit concurrent walks of trees. Counting has slots of its own because it holds a path lock,
	// and must not wait for copies.
	copySlots, countSlots walkSlots

	// running is canceled by Close, which then waits for background.
	running    context.Context
	stop       context.CancelFunc
	background sync.WaitGroup

	cache cache
	// imageLocks locks the images of sessions, by workspace and session.
	imageLocks pathLocks

	mu     sync.Mutex
	closed bool
	// sweeping has an entry for each workspace that has a running sweeper; true: sweep once more, for new leftovers.
	sweeping map[string]bool
	// unsettled counts, for each image, the requests in this process that settle its marker.
	unsettled map[imageName]int
}

// New opens the drives below options.Dir and creates that folder if it does not exist.
func New(options Options) (*Drives, error) {
	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, err
	}
	if err := createDurably(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	generated := options.Generated
	if generated == nil {
		generated = DefaultGenerated
	}
	d := &Drives{
		dir: dir, root: root, asker: options.Asker, generated: slices.Clone(generated),
		log: cmp.Or(options.Log, slog.Default()), metrics: newMetrics(dir),
		sweepSlots: make(chan struct{}, 2), copySlots: make(walkSlots, maxWalks), countSlots: make(walkSlots, maxWalks),
		sweeping: map[string]bool{}, unsettled: map[imageName]int{},
	}
	d.cache.capacity = max(cmp.Or(options.Descriptors, defaultDescriptors), MinDescriptors)
	d.cache.drives, d.cache.metrics, d.cache.newDrive = map[string]*Drive{}, d.metrics, d.newDrive
	d.room = options.Room
	if d.room == nil {
		d.room = func(string) error { return nil }
	}
	d.quota = quota.New(quota.Options{
		Dir: dir, Limit: options.Quota, Reserve: options.Reserve, Least: options.Least, Measure: d.measure, Journal: options.Journal,
		Payer: options.Payer, Refused: d.metrics.countRefusal, Log: d.log,
	})
	d.running, d.stop = context.WithCancel(context.Background())
	return d, nil
}

// createDurably creates a folder and its missing parents, and makes its entry in the parent folder durable.
func createDurably(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

// Provision creates the folders of a workspace's drive, durably. It does nothing if they exist. It returns Full, Unavailable,
// or an error of the file system.
func (d *Drives) Provision(ctx context.Context, workspaceID string) error {
	if err := validateWorkspaceID(workspaceID); err != nil {
		return err
	}
	r, err := d.cache.reserve(ctx, "")
	if err != nil {
		return err
	}
	defer d.cache.release(r)
	for _, folder := range []struct {
		name string
		mode fs.FileMode
	}{{workspaceID, 0o750}, {workspaceID + "/files", 0o755}, {workspaceID + "/tmp", 0o700}} {
		if err := d.root.Mkdir(folder.name, folder.mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fromOS(err)
		}
	}
	d.quota.Prepare(workspaceID)
	if err := syncFolder(filepath.Join(d.dir, workspaceID)); err != nil {
		return fromOS(err)
	}
	return fromOS(syncFolder(d.dir))
}

// Dir returns the absolute path of the folder that holds one folder for each workspace.
func (d *Drives) Dir() string { return d.dir }

// Close stops the background work and closes every drive. Operations with an unknown outcome are recovered at the next
// start.
func (d *Drives) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	d.mu.Unlock()
	d.cache.stop()
	d.stop()
	d.background.Wait()
	return errors.Join(d.cache.closeFiles(), d.root.Close())
}

// runInBackground starts work in a goroutine that Close waits for. It returns false if the drives are closing.
func (d *Drives) runInBackground(work func(ctx context.Context)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.background.Go(func() { work(d.running) })
	return true
}

// validateWorkspaceID refuses an id that is not one path segment.
func validateWorkspaceID(workspaceID string) error {
	if err := entity.CheckPath(workspaceID); err != nil {
		return err
	}
	if strings.Contains(workspaceID, "/") {
		return entity.Errorf(entity.InvalidRequest, "workspace id has a slash")
	}
	return nil
}

const (
	// askTimeout limits one command to the activity.
	askTimeout = 10 * time.Second
	// waitTimeout limits each wait of an operation: for descriptors, for a path lock, for a recovery, for a walk slot.
	waitTimeout = 10 * time.Second
)

// Usage returns the used and total bytes of a workspace's drive: the bytes of the quota, or of the file system if the drive
// has no quota. It reads one entry of the drive, to verify that the drive is readable, and keeps no file open. It returns
// NotFound if the drive does not exist, and Unavailable if no descriptors are available.
func (d *Drives) Usage(workspaceID string) (used, total uint64, err error) {
	if err := validateWorkspaceID(workspaceID); err != nil {
		return 0, 0, err
	}
	r, err := d.cache.reserve(d.running, "")
	if err != nil {
		return 0, 0, err
	}
	defer d.cache.release(r)
	files, err := d.root.Open(workspaceID + "/files")
	if err != nil {
		return 0, 0, fromOS(err)
	}
	defer files.Close()
	if _, err := files.Readdirnames(1); err != nil && !isEOF(err) {
		return 0, 0, fromOS(err)
	}
	used, _, err = d.quota.Space(d.running, workspaceID)
	if err == nil {
		total, err = d.quota.Total()
	}
	return used, total, fromOS(err)
}

// Exists reports whether a path leads to a file or folder.
func (d *Drive) Exists(_ context.Context, path string) (bool, error) {
	_, err := d.Stat(path)
	if entity.HasCode(err, entity.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// Exists reports whether a path of a workspace's drive leads to a file or folder. For the root, "", it verifies that the
// drive is readable and returns an error if it is not.
func (d *Drives) Exists(ctx context.Context, workspaceID, path string) (bool, error) {
	drive, release, err := d.Open(ctx, workspaceID)
	if err != nil {
		return false, err
	}
	if path == "" {
		release() // Usage reserves descriptors of its own
		_, _, err := d.Usage(workspaceID)
		return err == nil, err
	}
	defer release()
	return drive.Exists(ctx, path)
}
