package quota

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/tests/testmachine"
)

// mount returns a folder on a file system of its own, which is unmounted after the test.
func mount(t *testing.T, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		testmachine.Lacks(t, "mounting needs root")
	}
	// The folders of t.TempDir are closed to the user of processes.
	at, err := os.MkdirTemp("", "atelier-quota-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(at); err != nil {
			t.Error(err)
		}
	})
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.Chmod(at, 0o755), os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-O", "quota,project", "-E", "quotatype=prjquota", image).CombinedOutput(); err != nil {
		testmachine.Lacks(t, "mkfs.ext4: "+err.Error()+string(out))
	}
	if out, err := exec.Command("mount", "-o", options, image, at).CombinedOutput(); err != nil {
		testmachine.Excludes(t, "this kernel does not mount a file system with project quotas: "+string(out))
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return at
}

// newDrive makes the folders of a drive, which belong to the user of processes.
func newDrive(t *testing.T, dir, workspaceID string) string {
	t.Helper()
	files := filepath.Join(dir, workspaceID, "files")
	err := errors.Join(os.MkdirAll(files, 0o755), os.Mkdir(filepath.Join(dir, workspaceID, "tmp"), 0o700), os.Chown(files, 1000, 1000))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// write writes a file as a process does, and returns the error message.
func write(path, size string) string {
	c := exec.Command("/bin/sh", "-c", `head -c "$1" /dev/zero > "$2"`, "sh", size, path)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := c.CombinedOutput()
	if err != nil && len(out) == 0 {
		return err.Error()
	}
	return string(out)
}

func projects(t *testing.T, dir string, limit Limit) *Limiter {
	t.Helper()
	return New(Options{Dir: dir, Limit: limit, Log: slog.New(slog.DiscardHandler), Measure: func(_ context.Context, workspaceID string, _ func(Usage) bool) (Usage, error) {
		t.Errorf("%s is walked", workspaceID)
		return Usage{}, errors.New("no walk was expected")
	}})
}

func TestEnforcedProjects(t *testing.T) {
	dir := mount(t, "loop,prjquota")
	limit := Limit{Bytes: 1 << 20, Files: 20}
	l := projects(t, dir, limit)
	if l.kernel != enforces {
		t.Fatalf("the kernel is found to do %d", l.kernel)
	}
	one, two := newDrive(t, dir, "ws_1"), newDrive(t, dir, "ws_2")
	l.Prepare("ws_1")
	if message := write(filepath.Join(one, "big"), "2097152"); message == "" {
		t.Error("a process has exceeded the quota")
	}
	if info, err := os.Stat(filepath.Join(one, "big")); err != nil || info.Size() > 1<<20 {
		t.Errorf("%v, %v", info, err)
	}
	if err := l.Check(t.Context(), "ws_1", nil); err != nil {
		t.Errorf("processes may not run: %v", err)
	}
	if err := l.Require(t.Context(), "ws_1", Usage{Bytes: 64 << 10}); !isFull(err) {
		t.Errorf("an upload to a full drive: %v", err)
	}
	if used, available, err := l.Space(t.Context(), "ws_1"); err != nil || used < 900<<10 || available > 100<<10 {
		t.Errorf("%d are used and %d available, %v", used, available, err)
	}
	if err := l.Require(t.Context(), "ws_2", Usage{Bytes: 500 << 10}); err != nil { // the first use of a drive
		t.Errorf("an upload to another drive: %v", err)
	}
	if message := write(filepath.Join(two, "a"), "100000"); message != "" {
		t.Error(message)
	}
	if err := os.Remove(filepath.Join(one, "big")); err != nil {
		t.Fatal(err)
	}
	// A later server with another limit.
	l = projects(t, dir, Limit{Files: 10})
	if err := l.Require(t.Context(), "ws_1", Usage{Bytes: 3 << 20}); err != nil {
		t.Error(err)
	}
	if message := write(filepath.Join(one, "big"), "2097152"); message != "" {
		t.Errorf("after the limit was removed: %q", message)
	}
	made := 0
	for ; made < 20 && write(filepath.Join(one, string(rune('a'+made))), "0") == ""; made++ {
	}
	if made < 4 || made > 9 {
		t.Errorf("a process has made %d files", made)
	}
	// Entries of one drive move within it, and not to another drive.
	if err := os.Rename(filepath.Join(one, "big"), filepath.Join(dir, "ws_1", "tmp", "big")); err != nil {
		t.Error(err)
	}
	if err := os.Link(filepath.Join(dir, "ws_1", "tmp", "big"), filepath.Join(two, "big")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("a link to the file of another drive: %v", err)
	}
}

// TestCountedProjects verifies that Check ends processes where the kernel counts but does not enforce.
func TestCountedProjects(t *testing.T) {
	dir := mount(t, "loop")
	l := projects(t, dir, Limit{Bytes: 1 << 20})
	if l.kernel != counts {
		testmachine.Lacks(t, "this kernel does not count without enforcing")
	}
	files := newDrive(t, dir, "ws_1")
	if err := l.Check(t.Context(), "ws_1", nil); err != nil {
		t.Error(err)
	}
	if message := write(filepath.Join(files, "big"), "2097152"); message != "" {
		t.Error(message)
	}
	if err := l.Check(t.Context(), "ws_1", nil); !isFull(err) {
		t.Errorf("a drive beyond its quota: %v", err)
	}
}

// TestDriveWithFilesIsWalked verifies that a drive of an earlier version does not become a project.
func TestDriveWithFilesIsWalked(t *testing.T) {
	dir := mount(t, "loop,prjquota")
	files := newDrive(t, dir, "ws_1")
	if message := write(filepath.Join(files, "a"), "1"); message != "" {
		t.Fatal(message)
	}
	d := &fakeDrive{used: Usage{Bytes: 5}}
	l := New(Options{Dir: dir, Limit: Limit{Bytes: 10}, Measure: d.measure, Log: slog.New(slog.DiscardHandler)})
	if err := l.Require(t.Context(), "ws_1", Usage{Bytes: 6}); !isFull(err) || d.walks != 1 {
		t.Errorf("%d walks, %v", d.walks, err)
	}
	if err := os.Rename(filepath.Join(files, "a"), filepath.Join(dir, "ws_1", "tmp", "a")); err != nil {
		t.Error(err)
	}
	if err := l.Check(t.Context(), "ws_none", nil); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
