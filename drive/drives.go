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

	mu     sync.Mutex
	closed bool
	open   map[string]*Drive
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
		removing: make(chan struct{}, 2), copying: make(walks, maxWalks), counting: make(walks, maxWalks), open: map[string]*Drive{},
	}
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
func (d *Drives) Provision(_ context.Context, workspaceID string) error {
	if err := checkID(workspaceID); err != nil {
		return err
	}
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

// Recover brings a workspace's drive and its sequence to agreement after a crash: it completes or abandons each intent
// that no running operation owns. A drive that is not provisioned has nothing to recover. It returns an error where
// the activity does not answer; the drive then stays closed until a later try.
func (d *Drives) Recover(ctx context.Context, workspaceID string) error {
	drive, err := d.lookup(workspaceID)
	if errors.Is(err, errUnprovisioned) {
		return nil
	}
	if err != nil {
		return err
	}
	return drive.recover(ctx)
}

// Open gives a workspace's drive, recovered. It refuses with Unavailable where the drive is not provisioned or cannot
// be recovered now.
func (d *Drives) Open(ctx context.Context, workspaceID string) (*Drive, error) {
	drive, err := d.lookup(workspaceID)
	if err != nil {
		return nil, err
	}
	if !drive.recovered.Load() {
		if err := drive.recoverOnce(ctx); err != nil {
			return nil, err
		}
	}
	return drive, nil
}

func (d *Drives) lookup(workspaceID string) (*Drive, error) {
	if err := checkID(workspaceID); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, unavailable("the drives are closing")
	}
	if drive := d.open[workspaceID]; drive != nil {
		return drive, nil
	}
	drive, err := d.openDrive(workspaceID)
	if err != nil {
		return nil, err
	}
	d.open[workspaceID] = drive
	return drive, nil
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
	d.stop()
	d.background.Wait()
	err := d.root.Close()
	for _, drive := range d.open {
		err = errors.Join(err, drive.close())
	}
	return err
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
