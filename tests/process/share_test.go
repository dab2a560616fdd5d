package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	api "github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/tests/place"
	"github.com/atelier-run/atelier/tests/testmachine"
	"github.com/atelier-run/atelier/volume"
)

// filling returns the beginning of the script of a process that fills the disk. Its pauses give a busy machine the time to end the process;
// there are none in long runs.
func filling() string {
	pause := "0.01"
	if *soakTime != 0 {
		pause = "0"
	}
	return "pause=" + pause + "; zeros() { while dd if=/dev/zero bs=1M count=2 2>/dev/null; do sleep $pause; done; }; mkdir -p fill && cd fill && "
}

// ownError stands for the end of a process by an error of its own.
const ownError = "exit"

// TestShareOfFullDisk has the processes of one workspace fill the volume of a node, again and again. They end, and other writes of the
// workspace are refused, until it deletes something. The workspace of somebody else goes on: no upload or command is refused, and a process
// that writes is not ended.
func TestShareOfFullDisk(t *testing.T) {
	requireRoot(t)
	settings := []string{"--min-free-space=32MiB", "--drive-reserve=192MiB"}
	for name, test := range map[string]struct {
		options, script string
		settings        []string
		// leaves is set if the files of the processes are there when they have ended.
		leaves bool
	}{
		"bytes":         {"size=512m", `zeros >$$`, nil, true},
		"many writers":  {"size=512m", `for i in 1 2 3 4 5 6; do zeros >$$-$i & done; wait`, nil, true},
		"removed files": {"size=512m", `exec 3>big; rm big; zeros >&3`, nil, false},
		"preallocation": {"size=512m", `i=0; while fallocate -l 20M $$-$i; do i=$((i+1)); done; zeros >$$`, nil, true},
		"inodes": {
			"size=512m,nr_inodes=60000", `mkdir $$; cd $$; i=0; while :; do : >$i; i=$((i+1)); [ $((i % 100)) != 0 ] || sleep $pause; done`,
			[]string{"--drive-reserve-files=36000"}, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			place.Take(t)
			n := start(t, filepath.Join(testmachine.Volume(t, test.options), "data"), append(settings, test.settings...)...)
			large, small := newOwner(t, n, "large"), newOwner(t, n, "small")
			working := make(chan error, 1)
			go func() {
				const script = `i=0; until [ -e stop ]; do i=$((i+1)); echo $i >counter || exit 9; sleep 0.01; done`
				status, err := small.Exec(t.Context(), "small", api.ExecRequest{Argv: []string{"sh", "-c", script}}, io.Discard, io.Discard)
				if err == nil && status != 0 {
					err = fmt.Errorf("exit %d", status)
				}
				working <- err
			}()
			eventually(t, "the process of the small workspace has begun", func() bool {
				body, err := small.ReadFile(t.Context(), "small", "counter")
				if err != nil {
					return false
				}
				return body.Close() == nil
			})
			rounds := 0
			work := func() {
				t.Helper()
				rounds++
				if _, err := small.WriteFile(t.Context(), "small", fmt.Sprint("file-", rounds), strings.NewReader(strings.Repeat("x", 64<<10))); err != nil {
					t.Fatalf("the upload %d of the small workspace: %v", rounds, err)
				}
				var out strings.Builder
				if status, err := small.Exec(t.Context(), "small", api.ExecRequest{Argv: []string{"echo", "hello"}}, &out, io.Discard); err != nil || status != 0 || out.String() != "hello\n" {
					t.Fatalf("the command %d of the small workspace: exit %d, %q, %v", rounds, status, out.String(), err)
				}
			}
			refusals := map[string]int{}
			for range 6 {
				filled := make(chan error, 1)
				go func() {
					status, err := large.Exec(t.Context(), "large", api.ExecRequest{Argv: []string{"sh", "-c", filling() + test.script}}, io.Discard, io.Discard)
					if err == nil && status != 0 { // it was fast enough to meet the end of the disk itself
						err = &api.Error{Code: ownError}
					}
					filled <- err
				}()
				for isFilling := true; isFilling; {
					work()
					select {
					case err := <-filled:
						refusal, is := errors.AsType[*api.Error](err)
						if !is {
							t.Fatalf("the process of the large workspace: %v", err)
						}
						refusals[refusal.Code]++
						isFilling = false
					default:
					}
				}
			}
			t.Logf("%d rounds of work of the small workspace; the processes of the large one: %v", rounds, refusals)
			for range 20 {
				work()
			}
			if _, err := small.WriteFile(t.Context(), "small", "stop", strings.NewReader("")); err != nil {
				t.Error(err)
			}
			if err := <-working; err != nil {
				t.Errorf("the process of the small workspace: %v", err)
			}
			expectBackup(t, n, "small")
			if test.leaves {
				expectShareRefused(t, n, large)
			} else if refusals["disk_full"]+refusals[ownError] != 6 {
				t.Errorf("the processes of the large workspace: %v", refusals)
			}
		})
	}
}

// expectBackup backs up a workspace and restores the backup.
func expectBackup(t *testing.T, n *node, slug string) {
	t.Helper()
	out, errs, code := atelier("admin", "backup", "create", "--data="+n.dir, "--slug="+slug)
	var made struct{ BackupID string }
	if err := json.Unmarshal([]byte(out), &made); err != nil || code != 0 {
		t.Fatalf("backup create of the workspace: exit %d, %s %s", code, out, errs)
	}
	if out, errs, code := atelier("admin", "backup", "restore", "--data="+n.dir, "--slug="+slug, "--backup="+made.BackupID); code != 0 {
		t.Errorf("backup restore of the workspace: exit %d, %s %s", code, out, errs)
	}
}

// newOwner creates a person with a workspace of the same name, and returns a client that tries each request once.
func newOwner(t *testing.T, n *node, name string) *api.Client {
	t.Helper()
	_, key := newPerson(t, n, name+"@example.org")
	c, err := api.New(n.address, key, api.WithAttempts(1))
	if err != nil {
		t.Fatal(err)
	}
	addWorkspace(t, c, name)
	return c
}

// addWorkspace creates a workspace and waits until it is active.
func addWorkspace(t *testing.T, c *api.Client, slug string) {
	t.Helper()
	if _, err := c.CreateWorkspace(t.Context(), api.NewWorkspace{Slug: slug, Name: slug}); err != nil {
		t.Fatal("creating the workspace: ", err)
	}
	eventually(t, "the workspace "+slug+" is active", func() bool {
		self, err := c.Whoami(t.Context())
		return err == nil && slices.ContainsFunc(self.Workspaces, func(w api.Workspace) bool { return w.Slug == slug && w.Status == "active" })
	})
}

// expectShareRefused expects that the workspace "large" may store nothing, because it has its share, and may delete files and then go on.
func expectShareRefused(t *testing.T, n *node, c *api.Client) {
	t.Helper()
	isRefused := func(err error, codes ...string) {
		t.Helper()
		if refusal, is := errors.AsType[*api.Error](err); !is || !slices.Contains(codes, refusal.Code) || !strings.Contains(refusal.Message, "this workspace has its share") {
			t.Errorf("got %v, want one of %s", err, codes)
		}
	}
	_, err := c.WriteFile(t.Context(), "large", "more", strings.NewReader("x"))
	isRefused(err, "insufficient_storage")
	_, err = c.Exec(t.Context(), "large", api.ExecRequest{Argv: []string{"true"}}, io.Discard, io.Discard)
	isRefused(err, "limit_reached", "insufficient_storage") // of the process, or already of its row in the journal
	if out, errs, code := atelier("admin", "backup", "create", "--data="+n.dir, "--slug=large"); code != 1 || !strings.Contains(errs, "has its share") {
		t.Errorf("backup create: exit %d, %s %s", code, out, errs)
	}
	if err := c.Delete(t.Context(), "large", "fill"); err != nil {
		t.Error(err)
	}
	eventually(t, "the large workspace may store something after it has deleted its files", func() bool {
		_, err := c.WriteFile(t.Context(), "large", "more", strings.NewReader("x"))
		return err == nil
	})
}

// shareSettings are for a disk of 512 MiB: somebody who uses 64 MiB is refused files with less than 162 MiB free, and with 16 MiB less than 132 MiB.
var shareSettings = []string{"--min-free-space=32MiB", "--drive-reserve=192MiB"}

// leaveFree has another program fill a disk until so many bytes are free.
func leaveFree(t *testing.T, disk string, free int64) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(disk, "filler"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	now, err := volume.Measure(disk)
	if err != nil {
		t.Fatal(err)
	}
	size := max(before.Size()+int64(now.FreeBytes)-free, 0)
	err = file.Truncate(size)
	if err == nil && size > 0 {
		err = unix.Fallocate(int(file.Fd()), 0, 0, size)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// isShareRefused reports whether a request was refused because the person has a share of the disk.
func isShareRefused(err error) bool {
	refusal, is := errors.AsType[*api.Error](err)
	return is && refusal.Code == "insufficient_storage" && strings.Contains(refusal.Message, "this workspace has its share")
}

// TestShareOfPerson has a person use 64 MiB in four workspaces, and another person 16 MiB in one, which is as much as each of the four. With less
// free space than a workspace with 64 MiB must leave, all workspaces of the first person are refused files and processes. The other person goes
// on, and so do all workspaces of the first person when three of them are empty.
func TestShareOfPerson(t *testing.T) {
	requireRoot(t)
	place.Take(t)
	disk := testmachine.Volume(t, "size=512m")
	n := start(t, filepath.Join(disk, "data"), shareSettings...)
	many, one := newOwner(t, n, "many-0"), newOwner(t, n, "one")
	content := strings.Repeat("x", 16<<20)
	write := func(c *api.Client, slug, name, content string) error {
		_, err := c.WriteFile(t.Context(), slug, name, strings.NewReader(content))
		return err
	}
	run := func(c *api.Client, slug string) error {
		status, err := c.Exec(t.Context(), slug, api.ExecRequest{Argv: []string{"true"}}, io.Discard, io.Discard)
		if err == nil && status != 0 {
			err = fmt.Errorf("exit %d", status)
		}
		return err
	}
	if err := write(one, "one", "file", content); err != nil {
		t.Fatal(err)
	}
	slugs := []string{"many-0", "many-1", "many-2", "many-3"}
	for i, slug := range slugs {
		if i > 0 {
			addWorkspace(t, many, slug)
		}
		if err := write(many, slug, "file", content); err != nil {
			t.Fatal(err)
		}
	}
	const free = 147 << 20
	for _, slug := range slugs {
		leaveFree(t, disk, free)
		if err := write(many, slug, "more", "x"); !isShareRefused(err) {
			t.Errorf("a file in %s: %v", slug, err)
		}
		if err := run(many, slug); err == nil {
			t.Errorf("a process has run in %s", slug)
		}
		if err := errors.Join(write(one, "one", "more", "x"), run(one, "one")); err != nil {
			t.Errorf("the other person: %v", err)
		}
	}
	for _, slug := range slugs[1:] {
		if err := many.Delete(t.Context(), slug, "file"); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the workspaces go on when three of them are empty", func() bool {
		leaveFree(t, disk, free)
		for _, slug := range slugs {
			if write(many, slug, "more", "x") != nil || run(many, slug) != nil {
				return false
			}
		}
		return true
	})
}

// TestChangesAfterProcessDeletes has a process delete the files of a workspace beyond its share, while the disk has space. When the disk is
// nearly full again, the workspace stores files, and changes that take space in the journal only are not refused for the deleted files.
func TestChangesAfterProcessDeletes(t *testing.T) {
	requireRoot(t)
	place.Take(t)
	disk := testmachine.Volume(t, "size=512m")
	n := start(t, filepath.Join(disk, "data"), shareSettings...)
	c := newOwner(t, n, "full")
	if _, err := c.WriteFile(t.Context(), "full", "file", strings.NewReader(strings.Repeat("x", 64<<20))); err != nil {
		t.Fatal(err)
	}
	const nearlyFull, roomy = 96 << 20, 300 << 20 // changes of somebody with 64 MiB are refused below 117 MiB
	names := 0
	rename := func() error {
		names++
		_, err := c.RenameWorkspace(t.Context(), "full", api.WorkspaceRename{Slug: "full", Name: fmt.Sprint("Name ", names), PublicURLBreakAcknowledged: true})
		return err
	}
	leaveFree(t, disk, nearlyFull)
	if _, err := c.WriteFile(t.Context(), "full", "more", strings.NewReader("x")); !isShareRefused(err) {
		t.Fatalf("a file: %v", err)
	}
	eventually(t, "changes are refused", func() bool {
		leaveFree(t, disk, nearlyFull)
		return isShareRefused(rename())
	})
	leaveFree(t, disk, roomy)
	eventually(t, "a process has deleted the file", func() bool {
		status, err := c.Exec(t.Context(), "full", api.ExecRequest{Argv: []string{"rm", "file"}}, io.Discard, io.Discard)
		return err == nil && status == 0
	})
	eventually(t, "files and changes are admitted after the deletion", func() bool {
		leaveFree(t, disk, nearlyFull)
		_, err := c.WriteFile(t.Context(), "full", "more", strings.NewReader("x"))
		return err == nil && rename() == nil
	})
}
