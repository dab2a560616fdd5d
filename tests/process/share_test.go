package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	api "github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/tests/place"
	"github.com/atelier-run/atelier/tests/testmachine"
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

// TestShareOfFullDisk has the processes of one workspace fill the volume of a node, again and again. They end, and what
// else the workspace wants to store is refused, until it deletes something. The workspace of somebody else goes on: no upload or command is
// refused, and a process that writes is not ended.
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
	if _, err := c.CreateWorkspace(t.Context(), api.NewWorkspace{Slug: name, Name: name}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the workspace "+name+" is active", func() bool {
		self, err := c.Whoami(t.Context())
		return err == nil && len(self.Workspaces) == 1 && self.Workspaces[0].Status == "active"
	})
	return c
}

// expectShareRefused expects that the workspace "large" may store nothing, because of what it has, and may delete files and then go on.
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
