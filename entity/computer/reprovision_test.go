package computer_test

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

func TestReprovisionAnswers(t *testing.T) {
	ask := &computerv1.Reprovision{TaskId: "tsk_2", BackupId: "bak_1", DriveReadable: true}
	blind := &computerv1.Reprovision{TaskId: "tsk_2", BackupId: "bak_1"}
	working := &computerv1.Reprovision{TaskId: "tsk_2", BackupId: "bak_1", DriveReadable: true, ActiveSessions: 2}
	training := &computerv1.Reprovision{TaskId: "tsk_2", BackupId: "bak_1", ActiveSessions: 0, ActiveJobs: 3}
	for name, test := range map[string]struct {
		before []computerv1.Command
		ask    *computerv1.Reprovision
		want   *computerv1.Reprovisioned
		events int
	}{
		"nothing yet":  {nil, ask, &computerv1.Reprovisioned{Status: "provisioning"}, 0},
		"provisioning": {[]computerv1.Command{&computerv1.RequestComputer{TaskId: "tsk_1"}}, ask, &computerv1.Reprovisioned{Status: "provisioning"}, 0},
		"readable":     {provisioned(), ask, &computerv1.Reprovisioned{Status: "backup_pending", BackupId: "bak_1"}, 1},
		"not readable": {provisioned(), blind, &computerv1.Reprovisioned{
			Status: "provisioning", Scheduled: true, OldVmName: "vm-1", ImageRef: "local"}, 1},
		"active sessions": {provisioned(), working, &computerv1.Reprovisioned{Status: "deferred", ActiveSessions: 2}, 0},
		"active jobs":     {provisioned(), training, &computerv1.Reprovisioned{Status: "deferred", ActiveJobs: 3}, 0},
		"no longer active": {append(provisioned(), working), ask,
			&computerv1.Reprovisioned{Status: "backup_pending", BackupId: "bak_1"}, 1},
		"active, but a task is open": {append(provisioned(), &computerv1.BackUp{TaskId: "tsk_9", BackupId: "bak_9"}), working,
			&computerv1.Reprovisioned{Status: "provisioning"}, 0},
		"active, but nothing yet": {nil, working, &computerv1.Reprovisioned{Status: "provisioning"}, 0},
		"a task is open": {append(provisioned(), &computerv1.BackUp{TaskId: "tsk_9", BackupId: "bak_9"}), ask,
			&computerv1.Reprovisioned{Status: "provisioning"}, 0},
	} {
		l := newStored(t)
		for _, c := range test.before {
			l.must(c)
		}
		events, logged := len(l.events), len(l.audit)
		reply, err := l.as(owner, test.ask)
		if err != nil || !proto.Equal(reply, test.want) {
			t.Errorf("%s: %v, %v; want %v", name, reply, err, test.want)
		}
		if len(l.events)-events != test.events || len(l.audit) != logged {
			t.Errorf("%s: %d events, %d audit rows", name, len(l.events)-events, len(l.audit)-logged)
		}
	}
}

// TestWorkReportedHasNoEffect replays an event that earlier rules emitted.
func TestWorkReportedHasNoEffect(t *testing.T) {
	l := newActive(t)
	l.state = computer.Evolve(l.state, &computerv1.WorkReported{ActiveSessions: 1, ActiveJobs: 1})
	reply, err := l.as(owner, &computerv1.Reprovision{TaskId: "tsk_2", BackupId: "bak_1", DriveReadable: true})
	if err != nil || reply.(*computerv1.Reprovisioned).GetStatus() != computer.BackupPending {
		t.Errorf("Reprovision: %v, %v", reply, err)
	}
}

// TestReplacementFollowsBackup checks that the end of the backup opens the task of the replacement.
func TestReplacementFollowsBackup(t *testing.T) {
	l := newActive(t)
	grant := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: "usr_1", CredentialId: "ogr_1", Grants: entity.AllCapabilities()}
	if _, err := l.as(grant, &computerv1.Reprovision{TaskId: "tsk_2", BackupId: "bak_1", DriveReadable: true}); err != nil {
		t.Fatal(err)
	}
	l.must(&computerv1.ReportBackedUp{TaskId: "tsk_2", Backup: &computerv1.Backup{SizeBytes: 7}})
	if k := l.state.GetTask().GetKind(); k != computerv1.TaskKind_TASK_KIND_REPLACE {
		t.Fatalf("the task is %v", k)
	}
	next := l.state.GetTask().GetVmName()
	l.must(&computerv1.ReportProvisioned{TaskId: "tsk_2", VmName: next, ImageRef: "local"})
	if l.state.GetVmName() != next || next == "vm-1" || l.state.GetTask() != nil || l.state.GetBackups()["bak_1"].GetSizeBytes() != 7 {
		t.Errorf("state %v", l.state)
	}
	want := []string{
		`backup.created usr_1 api-key:ogr_1 imageRef: lifecycleBackupId:bak_1 previousVmName: vmName:`,
		`workspace.reprovisioned usr_1 api-key:ogr_1 imageRef:local lifecycleBackupId:bak_1 previousVmName:vm-1 vmName:` + next,
	}
	if len(l.audit) != len(want) {
		t.Errorf("%d audit events, want %d", len(l.audit), len(want))
	}
	for i, e := range l.audit {
		p := e.GetProvenance()
		got := fmt.Sprintf("%s %s %s imageRef:%s lifecycleBackupId:%s previousVmName:%s vmName:%s", e.GetEvent(), e.GetActorId(), p.GetActor(),
			p.GetImageRef(), p.GetLifecycleBackupId(), p.GetPreviousVmName(), p.GetVmName())
		if i >= len(want) || got != want[i] {
			t.Errorf("audit %d: %s", i, got)
		}
	}
}

// TestFailedReplacementIsNotRecorded checks that a replacement leaves no audit event if it fails, in its backup or later.
func TestFailedReplacementIsNotRecorded(t *testing.T) {
	l := newActive(t)
	reprovision := func(task, backup string) {
		t.Helper()
		if _, err := l.as(owner, &computerv1.Reprovision{TaskId: task, BackupId: backup, DriveReadable: true}); err != nil {
			t.Fatal(err)
		}
	}
	reprovision("tsk_2", "bak_1")
	l.must(&computerv1.ReportFailed{TaskId: "tsk_2", Reason: "no bucket"})
	if len(l.audit) > 0 {
		t.Fatalf("a backup that failed: %v", l.audit)
	}
	reprovision("tsk_3", "bak_2")
	l.must(&computerv1.ReportBackedUp{TaskId: "tsk_3", Backup: &computerv1.Backup{SizeBytes: 7}})
	l.must(&computerv1.ReportFailed{TaskId: "tsk_3", Reason: "no image"})
	if len(l.audit) != 1 || l.audit[0].GetEvent() != "backup.created" || l.state.GetBackups()["bak_2"] == nil {
		t.Errorf("a replacement that failed: %v", l.audit)
	}
}
