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
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
)

// Asker sends commands to the activity of a workspace. An error that is an *entity.Error with a code other than
// Unavailable or Internal is a refusal: the command had no effect. After any other error the effect is unknown.
type Asker interface {
	Ask(ctx context.Context, c entity.Command) (proto.Message, error)
}

// DefaultGenerated are the folders whose content is generated, and recorded in summaries.
var DefaultGenerated = []string{"node_modules", ".git", "target", "dist", "build", ".venv", "__pycache__", ".cache"}

// Options of New.
type Options struct {
	// Dir holds a folder for each workspace.
	Dir   string
	Asker Asker
	// Generated names the folders strictly below which operations belong to a generated tree; nil: DefaultGenerated.
	Generated []string
	// Descriptors bounds the file descriptors that all drives and the operations on them hold, restores apart, which hold
	// two more each; 0: 4096. At least MinDescriptors.
	Descriptors int
	// Log gets what no client can be told; nil: slog.Default.
	Log *slog.Logger
}

// Drives are the drives of the workspaces on this machine. It is a prometheus.Collector.
type Drives struct {
	dir       string
	root      *os.Root
	asker     Asker
	generated []string
	log       *slog.Logger
	metrics   *metrics
	// removing bounds how many drives remove their trash at once.
	removing chan struct{}
	// copying and counting have room for the walks of trees. Counting waits for no copy: it holds a path meanwhile.
	copying, counting walks

	// running ends when the drives are closed; background counts what must end first.
	running    context.Context
	stop       context.CancelFunc
	background sync.WaitGroup

	// cache has the open drives.
	cache cache

	mu     sync.Mutex
	closed bool
	// sweeping are the workspaces whose leftovers are being removed: true where more came since.
	sweeping map[string]bool
}

// New opens the drives below a folder, which is made where it is missing.
func New(options Options) (*Drives, error) {
	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, err
	}
	if err := makeDurable(dir); err != nil {
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
		log: cmp.Or(options.Log, slog.Default()), metrics: newMetrics(),
		removing: make(chan struct{}, 2), copying: make(walks, maxWalks), counting: make(walks, maxWalks),
		sweeping: map[string]bool{},
	}
	d.cache.capacity = max(cmp.Or(options.Descriptors, defaultDescriptors), MinDescriptors)
	d.cache.drives, d.cache.metrics, d.cache.newDrive = map[string]*Drive{}, d.metrics, d.newDrive
	d.running, d.stop = context.WithCancel(context.Background())
	return d, nil
}

// makeDurable makes a folder whose parent may be missing as well, and its entry durable.
func makeDurable(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

// Provision makes a workspace's folders where they are missing, durably.
func (d *Drives) Provision(ctx context.Context, workspaceID string) error {
	if err := checkID(workspaceID); err != nil {
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
	if err := syncFolder(filepath.Join(d.dir, workspaceID)); err != nil {
		return fromOS(err)
	}
	return fromOS(syncFolder(d.dir))
}

// Close ends the work in the background and closes every drive. What it leaves unresolved the next start recovers.
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

// spawn runs work in the background unless the drives are closing.
func (d *Drives) spawn(work func(ctx context.Context)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.background.Go(func() { work(d.running) })
	return true
}

func checkID(workspaceID string) error {
	if err := entity.CheckPath(workspaceID); err != nil {
		return err
	}
	if strings.Contains(workspaceID, "/") {
		return entity.Errorf(entity.InvalidRequest, "workspace id has a slash")
	}
	return nil
}

// askTimeout bounds one command; patience bounds the wait for a path that another operation holds.
const (
	askTimeout = 10 * time.Second
	patience   = 10 * time.Second
)
