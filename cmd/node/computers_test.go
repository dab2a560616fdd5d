package node

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/nodetest"
)

const ws = "ws_1"

var (
	owner  = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1", CredentialId: "key_1"}
	change = drive.Change{Author: &activityv1.Author{Actor: "api-key:key_1", UserId: "usr_1"}}
)

// A home is a node over a directory, with one workspace.
type home struct {
	*testing.T
	dir string
	*Node
	options Options
	// impatient makes requests not wait for computers.
	impatient bool
	// wall, if set, is the wall clock of the node.
	wall *wall
	// backupEvery is the interval between scheduled backups.
	backupEvery time.Duration
	last        atomic.Int64
}

// testTimeout is longer than any test takes on a slow machine.
const testTimeout = 5 * time.Minute

// clock returns each millisecond at most once: of two checks in one millisecond, the second has no effect.
func (h *home) clock() time.Time {
	for {
		last := h.last.Load()
		now := max(time.Now().UnixMilli(), last+1)
		if h.last.CompareAndSwap(last, now) {
			return time.UnixMilli(now)
		}
	}
}

func newHome(t *testing.T) *home {
	return newHomeAt(t, nil)
}

// newHomeAt is newHome with a wall clock that the test sets.
func newHomeAt(t *testing.T, w *wall) *home {
	h := &home{T: t, dir: filepath.Join(t.TempDir(), "a [name] like a pattern["), wall: w}
	h.start()
	t.Cleanup(func() { h.stop() })
	h.ask(entity.KindWorkspace, &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "usr_1"})
	h.settle()
	return h
}

// newUnprovisionedHome returns a home with a workspace that cannot be provisioned until the file blockedDrive is removed.
func newUnprovisionedHome(t *testing.T) *home {
	h := &home{T: t, dir: t.TempDir(), impatient: true}
	h.check(os.Mkdir(filepath.Dir(h.blockedDrive()), 0o700))
	h.check(os.WriteFile(h.blockedDrive(), nil, 0o600))
	h.start()
	t.Cleanup(func() { h.stop() })
	h.ask(entity.KindWorkspace, &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "usr_1"})
	h.settle()
	return h
}

// blockedDrive returns the path of the file that takes the place of the workspace's drive.
func (h *home) blockedDrive() string { return filepath.Join(h.dir, "drives", ws) }

func (h *home) start() {
	h.Helper()
	pendingLimit := testTimeout
	if h.impatient {
		pendingLimit = time.Millisecond
	}
	clock := h.clock
	if h.wall != nil {
		clock = h.wall.clock()
	}
	h.options = Options{
		Dir: h.dir, Wire: true, SampleEvery: time.Hour, PendingLimit: pendingLimit, Clock: clock, BackupEvery: h.backupEvery, BackupKeep: 2,
		Journal: persistence.Options{CacheBytes: 4 << 20, Partitions: 2},
	}
	n, err := Start(context.Background(), h.options)
	if err != nil {
		h.Fatal(err)
	}
	h.Node = n
}

func (h *home) stop() { nodetest.Stop(h, h.Node) }

func (h *home) ask(kind string, m proto.Message) proto.Message {
	h.Helper()
	return h.as(entity.Platform(), kind, m)
}

func (h *home) as(p *wirev1.Principal, kind string, m proto.Message) proto.Message {
	h.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	reply, err := h.Router.Ask(ctx, entity.Command{Kind: kind, Identity: ws, Principal: p, Message: m})
	if err != nil {
		h.Fatalf("%s: %v", entity.MessageName(m), err)
	}
	return reply
}

func (h *home) settle() {
	h.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := h.asker(h.options).Settle(ctx, entity.KindWorkspace, ws); err != nil {
		h.Fatal(err)
	}
	if err := h.Router.SettleAll(ctx, h.Router.Partition(ws)); err != nil {
		h.Fatal(err)
	}
}

// done waits until the computer has no open task, and returns its state.
func (h *home) done() *computerv1.Computer {
	h.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	for ctx.Err() == nil {
		h.settle()
		state := h.ask(entity.KindComputer, &computerv1.DescribeComputer{}).(*computerv1.Computer)
		if state.GetTask() == nil {
			h.settle()
			return state
		}
	}
	h.Fatal("the computer has an open task for too long")
	return nil
}

// sample samples every computer now.
func (h *home) sample() {
	h.Helper()
	for p := range h.Journal.Partitions() {
		h.check(h.Computers.Sample(context.Background(), computer.NewShare(h.Systems[0].OwnedPartition(persistence.Partition(p)))))
	}
}

func (h *home) drive() *drive.Drive {
	h.Helper()
	d, release, err := h.Drives.Open(context.Background(), ws)
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(release)
	return d
}

func (h *home) put(path, content string) {
	h.Helper()
	_, _, err := h.drive().Put(context.Background(), path, drive.Upload{Body: strings.NewReader(content), Size: -1}, change)
	if err != nil {
		h.Fatal(err)
	}
}

func (h *home) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *home) content(path string) string {
	h.Helper()
	f, _, err := h.drive().Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	h.check(err)
	return string(content)
}

func rows[M proto.Message](h *home, kind, list string, zero func() M) []M {
	h.Helper()
	page := h.as(owner, kind, &wirev1.List{Name: list, Limit: 6000}).(*wirev1.Page)
	var all []M
	for _, row := range page.GetRows() {
		m := zero()
		h.check(proto.Unmarshal(row, m))
		all = append(all, m)
	}
	return all
}

func (h *home) audit() string {
	h.Helper()
	var names []string
	for _, e := range rows(h, entity.KindWorkspace, "audit", func() *auditv1.Event { return new(auditv1.Event) }) {
		names = append(names, e.GetEvent()+" by "+e.GetActorId())
	}
	slices.Sort(names) // the anchors follow beside the restore, before or after its end
	return strings.Join(names, ", ")
}

func (h *home) workspaceStatus() workspacev1.Status {
	h.Helper()
	return h.as(owner, entity.KindWorkspace, &workspacev1.DescribeWorkspace{}).(*workspacev1.Description).GetWorkspace().GetStatus()
}

func TestWorkspaceGetsItsComputer(t *testing.T) {
	h := newHome(t)
	state := h.done()
	if state.GetStatus() != computerv1.Status_STATUS_ACTIVE || state.GetVmName() == "" || state.GetImageRef() != "local" {
		t.Errorf("computer %v", state)
	}
	if status := h.workspaceStatus(); status != workspacev1.Status_STATUS_ACTIVE {
		t.Errorf("workspace %v", status)
	}
	h.put("a", "x")

	h.sample()
	samples := rows(h, entity.KindComputer, "telemetry", func() *computerv1.Sample { return new(computerv1.Sample) })
	if len(samples) != 1 || samples[0].GetAt() == 0 || samples[0].GetDiskTotalMb() == 0 || samples[0].GetMemTotalMb() == 0 {
		t.Errorf("samples %v", samples)
	}

	// The computer is lost after two checks, and found again, also after a restart.
	files := filepath.Join(h.dir, "drives", ws, "files")
	h.check(os.Rename(files, files+".away"))
	for range 2 {
		h.sample()
	}
	h.settle()
	if status := h.workspaceStatus(); status != workspacev1.Status_STATUS_UNHEALTHY {
		t.Errorf("workspace %v", status)
	}
	h.check(os.Rename(files+".away", files))
	h.stop()
	h.start()
	h.sample()
	h.settle()
	if status := h.workspaceStatus(); status != workspacev1.Status_STATUS_ACTIVE {
		t.Errorf("workspace %v", status)
	}
}

func TestBackupAndRestore(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("kept", "before")
	h.check(h.drive().MakeFolder(t.Context(), "app", change))
	h.ask(entity.KindWorkspace, &workspacev1.CreateAnchor{AnchorId: "anc_1", Path: "app", Kind: workspacev1.AnchorKind_ANCHOR_KIND_APP})
	reply := h.as(owner, entity.KindComputer, &computerv1.Reprovision{TaskId: "tsk_b", BackupId: "bkp_1", DriveReadable: true}).(*computerv1.Reprovisioned)
	if reply.GetStatus() != "backup_pending" || reply.GetBackupId() != "bkp_1" {
		t.Errorf("reprovision: %v", reply)
	}
	old := h.done()
	if old.GetBackups()["bkp_1"].GetEntries() != 3 || old.GetFailed() != nil {
		t.Fatalf("computer %v", old)
	}
	h.put("kept", "after")
	h.put("new", "new")
	h.check(h.drive().Remove(t.Context(), "app", change))
	h.settle()
	if state := h.anchor("anc_1"); state != "broken app" {
		t.Errorf("anchor %s", state)
	}
	h.ask(entity.KindComputer, &computerv1.Restore{TaskId: "tsk_r", BackupId: "bkp_1"})
	if state := h.done(); state.GetFailed() != nil {
		t.Fatalf("computer %v", state)
	}
	if kept, gone := h.content("kept"), h.content("new"); kept != "before" || !strings.Contains(gone, "not_found") {
		t.Errorf("kept %q, new %q", kept, gone)
	}
	if state := h.anchor("anc_1"); state != "active app" {
		t.Errorf("anchor %s", state)
	}
	feed := h.as(owner, entity.KindActivity, &activityv1.ReadFeed{Limit: 100}).(*activityv1.Page)
	if n := strings.Count(string(feed.GetItems()), `"kind":"restore","actor":"system"`); n != 1 {
		t.Errorf("%d restore rows in %s", n, feed.GetItems())
	}
	want := "anchor.broken by system, anchor.created by system, anchor.repaired by system, backup.created by usr_1, " +
		"backup.restored by system, workspace.created by usr_1, workspace.reprovisioned by usr_1, workspace.status_changed by system"
	if got := h.audit(); got != want {
		t.Errorf("audit: %s", got)
	}
	kept := rows(h, entity.KindComputer, "backups", func() *computerv1.Backup { return new(computerv1.Backup) })
	if len(kept) != 1 || kept[0].GetId() != "bkp_1" {
		t.Errorf("backups %v", kept)
	}
}

// TestOpenTaskAfterRestart verifies that the next process takes a backup that could not be taken.
func TestOpenTaskAfterRestart(t *testing.T) {
	h := newHome(t)
	h.done()
	backups := filepath.Join(h.dir, "backups")
	h.check(os.RemoveAll(backups))
	h.check(os.WriteFile(backups, nil, 0o600))
	h.ask(entity.KindComputer, &computerv1.BackUp{TaskId: "tsk_b", BackupId: "bkp_1"})
	h.settle()
	h.stop()
	h.check(os.Remove(backups))
	unfinished := filepath.Join(backups, ws, "bkp_0.tar.zst.18a.tmp")
	h.check(os.MkdirAll(filepath.Dir(unfinished), 0o700))
	h.check(os.WriteFile(unfinished, nil, 0o600))
	h.start()
	if state := h.done(); state.GetBackups()["bkp_1"] == nil {
		t.Errorf("computer %v", state)
	}
	left, err := os.ReadDir(filepath.Join(backups, ws))
	if err != nil || len(left) != 1 || left[0].Name() != "bkp_1.tar.zst" {
		t.Errorf("in the bucket: %v, %v", left, err)
	}
}

// TestSamplesActivateNothing verifies that samples activate no entities.
func TestSamplesActivateNothing(t *testing.T) {
	h := newHome(t)
	h.done()
	h.stop()
	h.start()
	h.sample()
	for p := range h.Journal.Partitions() {
		for _, kind := range []string{entity.KindWorkspace, entity.KindComputer} {
			if active := h.Systems[0].Active(persistence.Partition(p), kind); len(active) != 0 {
				t.Errorf("active entities of kind %s: %v", kind, active)
			}
		}
	}
}

// TestLostWhileArchived verifies that a computer that is lost while its workspace is archived is reported as lost when the
// workspace is opened again.
func TestLostWhileArchived(t *testing.T) {
	h := newHome(t)
	h.done()
	h.ask(entity.KindWorkspace, &workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_ARCHIVED})
	files := filepath.Join(h.dir, "drives", ws, "files")
	h.check(os.Rename(files, files+".away"))
	for range 2 {
		h.sample()
	}
	h.settle()
	expect := func(want workspacev1.Status) {
		t.Helper()
		h.ask(entity.KindWorkspace, &workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_ACTIVE})
		h.settle()
		if status := h.workspaceStatus(); status != want {
			t.Errorf("workspace %v, want %v", status, want)
		}
	}
	expect(workspacev1.Status_STATUS_UNHEALTHY)
	h.check(os.Rename(files+".away", files))
	h.ask(entity.KindWorkspace, &workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_ARCHIVED})
	h.sample()
	h.settle()
	expect(workspacev1.Status_STATUS_ACTIVE)
}

// TestSlowProvisioning verifies that a computer that is not provisioned in time delays the answer to the creation of its
// workspace by PendingLimit only.
func TestSlowProvisioning(t *testing.T) {
	h := newUnprovisionedHome(t)
	if status := h.workspaceStatus(); status != workspacev1.Status_STATUS_PROVISIONING {
		t.Errorf("workspace %v", status)
	}
	h.check(os.Remove(h.blockedDrive()))
	if state := h.done(); state.GetStatus() != computerv1.Status_STATUS_ACTIVE {
		t.Errorf("computer %v", state)
	}
}

// TestPlatformCommandsOfComputers verifies that only the platform may send a computer the commands that are not for members.
func TestPlatformCommandsOfComputers(t *testing.T) {
	h := newHome(t)
	h.done()
	for _, m := range []proto.Message{
		&computerv1.BackUp{TaskId: "tsk_b", BackupId: "bkp_1"}, &computerv1.ReportMissing{At: 1}, &computerv1.DescribeComputer{},
	} {
		_, err := h.Router.Ask(t.Context(), entity.Command{Kind: entity.KindComputer, Identity: ws, Principal: owner, Message: m})
		if err == nil || !strings.Contains(err.Error(), string(entity.Forbidden)) {
			t.Errorf("%T: %v", m, err)
		}
	}
}

// TestDroppedBackupIsDeletedAfterRestart verifies that the next process deletes a dropped backup.
func TestDroppedBackupIsDeletedAfterRestart(t *testing.T) {
	h := newHome(t)
	h.done()
	h.ask(entity.KindComputer, &computerv1.BackUp{TaskId: "tsk_b", BackupId: "bkp_1"})
	taken := h.done().GetBackups()["bkp_1"]
	late := proto.CloneOf(taken)
	late.Id, late.Object = "bkp_2", strings.Replace(taken.GetObject(), "bkp_1", "bkp_2", 1)
	backups := filepath.Join(h.dir, "backups")
	object, err := os.ReadFile(filepath.Join(backups, ws, "bkp_1.tar.zst"))
	h.check(err)
	h.check(os.Rename(backups, backups+".away"))
	h.check(os.WriteFile(backups, nil, 0o600))
	h.ask(entity.KindComputer, &computerv1.ReportBackedUp{TaskId: "tsk_ended", Backup: late})
	h.stop()
	h.check(os.Remove(backups))
	h.check(os.Rename(backups+".away", backups))
	left := filepath.Join(backups, ws, "bkp_2.tar.zst")
	h.check(os.WriteFile(left, object, 0o600))
	h.start()
	for {
		state := h.ask(entity.KindComputer, &computerv1.DescribeComputer{}).(*computerv1.Computer)
		if len(state.GetDropped()) == 0 {
			break
		}
		h.settle()
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the dropped backup is there still: %v", err)
	}
	if _, err := os.Stat(filepath.Join(backups, ws, "bkp_1.tar.zst")); err != nil {
		t.Errorf("the backup that is kept is gone: %v", err)
	}
}
