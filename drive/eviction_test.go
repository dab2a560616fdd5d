package drive_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// activities is an Asker with an activity for each workspace.
type activities struct {
	mu  sync.Mutex
	all map[string]*drivetest.Activity
}

func (a *activities) of(workspaceID string) *drivetest.Activity {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string]*drivetest.Activity{}
	}
	if a.all[workspaceID] == nil {
		a.all[workspaceID] = &drivetest.Activity{}
	}
	return a.all[workspaceID]
}

func (a *activities) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	return a.of(c.Identity).Ask(ctx, c)
}

// openMin opens drives with enough descriptors for four operations on four drives.
func openMin(t *testing.T, dir string, asker entity.Asker, workspaces int) *drive.Drives {
	t.Helper()
	drives, err := drive.New(drive.Options{
		Dir: dir, Asker: asker, Log: slog.New(slog.DiscardHandler), Descriptors: drive.MinDescriptors,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drives.Close(); err != nil {
			t.Error(err)
		}
	})
	for i := range workspaces {
		if err := drives.Provision(t.Context(), numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
	return drives
}

func numbered(i int) string { return fmt.Sprintf("ws_%d", i) }

// descriptors returns the number of open file descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func store(ctx context.Context, drives *drive.Drives, workspaceID, path, content string) error {
	d, release, err := drives.Open(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer release()
	_, _, err = d.Put(ctx, path, drive.Upload{Body: strings.NewReader(content), Size: -1}, change)
	return err
}

func load(ctx context.Context, drives *drive.Drives, workspaceID, path string) (string, error) {
	d, release, err := drives.Open(ctx, workspaceID)
	if err != nil {
		return "", err
	}
	defer release()
	file, _, err := d.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(file)
	return string(content), err
}

func TestCacheEvictsIdleDrives(t *testing.T) {
	t.Run("many_drives_with_few_descriptors", func(t *testing.T) {
		const workspaces, writers, rounds = 40, 16, 6
		before := descriptors(t)
		drives := openMin(t, t.TempDir(), &activities{}, workspaces)
		var group sync.WaitGroup
		for w := range writers {
			group.Go(func() {
				for n := range workspaces * rounds / writers {
					id, path, want := numbered((n*7+w*3)%workspaces), fmt.Sprintf("f%d", w), fmt.Sprintf("%d of %d", n, w)
					if err := store(t.Context(), drives, id, path, want); err != nil {
						t.Errorf("%s: %v", id, err)
					}
					if got, err := load(t.Context(), drives, id, path); err != nil || got != want {
						t.Errorf("%s has %q, want %q: %v", id, got, want, err)
					}
					if n := descriptors(t) - before; n > drive.MinDescriptors+writers+4 { // each reading of /proc takes one
						t.Errorf("%d descriptors", n)
					}
				}
			})
		}
		group.Wait()
	})

	t.Run("drive_in_use_stays_open_and_next_waits", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			drives := openMin(t, dir, &activities{}, 5)
			releases := occupy(t, drives)
			opened := make(chan error, 1)
			go func() { opened <- store(context.Background(), drives, numbered(4), "a", "x") }()
			synctest.Wait()
			select {
			case err := <-opened:
				t.Fatalf("a fifth drive was opened while four are in use: %v", err)
			default:
			}
			releases[2]()
			releases[2]() // release is idempotent
			if err := <-opened; err != nil {
				t.Error(err)
			}
			for _, release := range releases {
				release()
			}
		})
	})

	t.Run("wait_ends_as_unavailable", func(t *testing.T) {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			drives := openMin(t, dir, &activities{}, 5)
			for _, release := range occupy(t, drives) {
				defer release()
			}
			_, _, err := drives.Open(t.Context(), numbered(4))
			if refusal, is := errors.AsType[*entity.Error](err); !is || refusal.Code != entity.Unavailable || refusal.RetryAfter == 0 {
				t.Errorf("a fifth drive: got %v, want unavailable with RetryAfter", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, _, err := drives.Open(ctx, numbered(4)); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a caller with an expired context: %v", err)
			}
		})
	})
}

// occupy opens four drives, which is as many as openMin has descriptors for.
func occupy(t *testing.T, drives *drive.Drives) (releases []func()) {
	t.Helper()
	for i := range 4 {
		_, release, err := drives.Open(t.Context(), numbered(i))
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	return releases
}

// TestEvictionKeepsPathsOfUnknownOutcomes evicts a drive that has an operation with an unknown outcome. The operation
// keeps its path locked.
func TestEvictionKeepsPathsOfUnknownOutcomes(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		all := &activities{}
		drives := openMin(t, dir, all, 12)
		all.of(numbered(0)).Fail(func(m proto.Message, _ bool) error {
			if _, is := m.(*activityv1.Complete); is {
				return drivetest.ErrUnknown
			}
			return nil
		})
		var refusal *entity.Error
		if err := store(t.Context(), drives, numbered(0), "a", "first"); !errors.As(err, &refusal) || refusal.Code != entity.Unavailable {
			t.Fatalf("an operation with an unknown outcome: got %v, want unavailable", err)
		}
		for i := range 11 {
			if err := store(t.Context(), drives, numbered(i+1), "a", "other"); err != nil {
				t.Fatal(err)
			}
		}
		if err := store(t.Context(), drives, numbered(0), "a", "second"); !errors.As(err, &refusal) || refusal.Code != entity.Unavailable {
			t.Fatalf("an operation on the same path: got %v, want unavailable", err)
		}
		all.of(numbered(0)).Fail(nil)
		time.Sleep(time.Minute)
		if err := store(t.Context(), drives, numbered(0), "a", "third"); err != nil {
			t.Fatal(err)
		}
		rows := all.of(numbered(0)).Rows()
		if len(rows) != 2 || len(all.of(numbered(0)).Intents()) > 0 {
			t.Errorf("rows %v, intents %v", rows, all.of(numbered(0)).Intents())
		}
	})
}

// TestOpenRecovers verifies that opening a drive recovers it, without a call of Recover.
func TestOpenRecovers(t *testing.T) {
	for name, operate := range operations {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			dir, activity := t.TempDir(), &drivetest.Activity{}
			first := open(t, dir, activity)
			prepare(t, dir)
			want := snapshotAfter(t, operate)
			stopped := stopAt(t, activity, "Complete", false)
			go operate(context.Background(), openDrive(t, first))
			<-stopped
			_, release, err := open(t, dir, activity).Open(t.Context(), workspace)
			if err != nil {
				t.Fatal(err)
			}
			release()
			if len(activity.Rows()) != 1 {
				t.Errorf("%d rows", len(activity.Rows()))
			}
			checkAgreement(t, dir, activity, nil, want)
		})
	}
}

func TestRestoresLeakNoDescriptors(t *testing.T) {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	d := openDrive(t, open(t, dir, activity))
	restore := func(n int) {
		t.Helper()
		archive := bytes.NewReader(newArchive(entry{"a", fmt.Sprint(n)}, entry{"./", ""}))
		must(t, d.Restore(t.Context(), fmt.Sprintf("tsk_%d", n), archive, accept, change))
	}
	restore(0)
	before := descriptors(t)
	folder, err := d.OpenFolder("")
	must(t, err)
	for n := range 20 {
		restore(n + 1)
	}
	must(t, folder.Close())
	eventually(t, func() bool { return descriptors(t) <= before }) // a running sweep holds some
	if entry, err := d.Stat("a"); err != nil || entry.Size != 2 {
		t.Errorf("%v, %v", entry, err)
	}
}

// eventually waits until a condition is true.
func eventually(t *testing.T, is func() bool) {
	t.Helper()
	deadline := time.After(3 * time.Minute) // only a test that fails waits so long
	for !is() {
		select {
		case <-deadline:
			t.Fatal("the condition did not become true")
		case <-time.After(time.Millisecond):
		}
	}
}
