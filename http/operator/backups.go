package operator

import (
	"encoding/hex"
	"net/http"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	rules "github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/http/server"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/computer"
)

// backups serves the backups of workspaces.
type backups struct{}

func (b backups) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: adminWorkspace + "/backups", Scope: server.ScopeOperator, Summary: "List a workspace's backups",
			Handler: server.Answer(http.StatusOK, server.Nothing, b.list)},
		{Method: http.MethodPost, Path: adminWorkspace + "/backups", Scope: server.ScopeOperator, Summary: "Back a workspace's drive up",
			Handler: server.Answer(http.StatusCreated, server.Nothing, b.create)},
		{Method: http.MethodPost, Path: adminWorkspace + "/restores", Scope: server.ScopeOperator, Summary: "Restore a workspace's drive from a backup",
			Handler: server.Answer(http.StatusCreated, server.Body[backupRequest], b.restore)},
		{Method: http.MethodPost, Path: adminWorkspace + "/verifications", Scope: server.ScopeOperator, Summary: "Verify a backup",
			Handler: server.Answer(http.StatusCreated, server.Body[backupRequest], b.verify)},
		{Method: http.MethodPost, Path: adminWorkspace + "/cancellations", Scope: server.ScopeOperator, Summary: "Cancel the backup, restore or verification in progress",
			Handler: server.Answer(http.StatusOK, server.Body[cancelRequest], b.cancel)},
		{Method: http.MethodPut, Path: adminWorkspace + "/backup-schedule", Scope: server.ScopeOperator, Idempotent: true, Summary: "Change how often a workspace's drive is backed up",
			Handler: server.Answer(http.StatusOK, server.Body[scheduleRequest], b.schedule)},
	}
}

type backupRecord struct {
	BackupID  string `json:"backupId"`
	CreatedAt int64  `json:"createdAt"`
	SizeBytes int64  `json:"sizeBytes"`
	Entries   int64  `json:"entries"`
	SHA256    string `json:"sha256"`
	// Seq is the seq of the activity that the backup covers; absent: it is not known.
	Seq *uint64 `json:"seq,omitzero"`
	// Origin is manual, scheduled or replacement.
	Origin string `json:"origin"`
	// VerifiedAt is the time of the last verification. VerificationFailure says why the backup is not usable.
	VerifiedAt          int64  `json:"verifiedAt,omitzero"`
	VerificationFailure string `json:"verificationFailure,omitzero"`
	// ChangedFiles is the number of files that were changed during each attempt to copy them, ChangedPaths has the first ones.
	ChangedFiles  int64    `json:"changedFiles,omitzero"`
	ChangedPaths  []string `json:"changedPaths,omitempty"`
	VanishedFiles int64    `json:"vanishedFiles,omitzero"`
	// UnreadableFiles is the number of files and folders that the node may not read, UnreadablePaths has the first ones.
	UnreadableFiles int64    `json:"unreadableFiles,omitzero"`
	UnreadablePaths []string `json:"unreadablePaths,omitempty"`
}

var originNames = map[computerv1.BackupOrigin]string{
	computerv1.BackupOrigin_BACKUP_ORIGIN_UNSPECIFIED: "manual",
	computerv1.BackupOrigin_BACKUP_ORIGIN_SCHEDULED:   "scheduled",
	computerv1.BackupOrigin_BACKUP_ORIGIN_REPLACEMENT: "replacement",
}

func viewBackup(b *computerv1.Backup) backupRecord {
	return backupRecord{
		BackupID: b.GetId(), CreatedAt: b.GetCreatedAt(), SizeBytes: b.GetSizeBytes(), Entries: b.GetEntries(),
		SHA256: hex.EncodeToString(b.GetSha256()), Seq: b.Seq, Origin: originNames[b.GetOrigin()],
		VerifiedAt: b.GetVerification().GetAt(), VerificationFailure: b.GetVerification().GetFailure(),
		ChangedFiles: b.GetChangedFiles(), ChangedPaths: b.GetChangedPaths(), VanishedFiles: b.GetVanishedFiles(),
		UnreadableFiles: b.GetUnreadableFiles(), UnreadablePaths: b.GetUnreadablePaths(),
	}
}

// backupList is a workspace's backups with the schedule and the failure of the last task, which is absent if it did not fail.
type backupList struct {
	operatorPage[backupRecord]
	Failed   *failureView `json:"failed,omitzero"`
	Schedule scheduleView `json:"schedule"`
}

type scheduleView struct {
	// EverySeconds is the time between two backups; 0: none are scheduled.
	EverySeconds int64 `json:"everySeconds"`
	// Keep is the number of scheduled backups that are stored.
	Keep int32 `json:"keep"`
	// Own is set if the workspace has a policy of its own.
	Own bool `json:"own"`
	// NextAt is the time of the next backup. CoveredAt is the last time when no backup was needed.
	NextAt    int64 `json:"nextAt,omitzero"`
	CoveredAt int64 `json:"coveredAt,omitzero"`
}

func viewSchedule(s *computerv1.Computer) scheduleView {
	policy := rules.EffectivePolicy(s)
	return scheduleView{
		EverySeconds: policy.GetEveryMs() / 1000, Keep: policy.GetKeep(), Own: s.GetSchedule().GetOwn() != nil,
		NextAt: s.GetSchedule().GetNextAt(), CoveredAt: s.GetSchedule().GetCoveredAt(),
	}
}

// backupTask is a task that a workspace's computer has accepted.
type backupTask struct {
	TaskID   string `json:"taskId"`
	BackupID string `json:"backupId"`
}

type backupRequest struct {
	BackupID string `json:"backupId"`
}

type cancelRequest struct {
	// TaskID is the task to cancel; empty: the task in progress.
	TaskID string `json:"taskId"`
}

// scheduleRequest has the policy of the workspace. If Inherit is set, the policy of the node applies.
type scheduleRequest struct {
	Inherit      bool  `json:"inherit"`
	EverySeconds int64 `json:"everySeconds"`
	Keep         int32 `json:"keep"`
}

// list returns all backups, newest first; a workspace has at most a hundred.
func (b backups) list(c *server.Call, _ server.None) (backupList, error) {
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return backupList{}, err
	}
	state, err := computer.Describe(c, w.ID)
	if err != nil {
		return backupList{}, err
	}
	found := backupList{Failed: viewFailure(state.GetFailed()), Schedule: viewSchedule(state)}
	found.Items = []backupRecord{}
	for _, b := range slices.Backward(rules.ByAge(state.GetBackups())) {
		found.Items = append(found.Items, viewBackup(b))
	}
	return found, nil
}

func (b backups) create(c *server.Call, _ server.None) (backupTask, error) {
	task := backupTask{c.NewID("tsk_"), c.NewID("bkp_")}
	return task, commandComputer(c, &computerv1.BackUp{TaskId: task.TaskID, BackupId: task.BackupID})
}

func (b backups) restore(c *server.Call, in backupRequest) (backupTask, error) {
	task, err := newTask(c, in)
	if err != nil {
		return task, err
	}
	return task, commandComputer(c, &computerv1.Restore{TaskId: task.TaskID, BackupId: task.BackupID})
}

func (b backups) verify(c *server.Call, in backupRequest) (backupTask, error) {
	task, err := newTask(c, in)
	if err != nil {
		return task, err
	}
	return task, commandComputer(c, &computerv1.VerifyBackup{TaskId: task.TaskID, BackupId: task.BackupID})
}

// newTask returns a task for an existing backup.
func newTask(c *server.Call, in backupRequest) (backupTask, error) {
	if in.BackupID == "" {
		return backupTask{}, server.Invalid("backupId is required")
	}
	return backupTask{c.NewID("tsk_"), in.BackupID}, nil
}

// cancelled names the task that was cancelled; it is empty if none was in progress.
type cancelled struct {
	TaskID string `json:"taskId"`
}

// cancel cancels the task in progress. A task that has ended meanwhile is no error.
func (b backups) cancel(c *server.Call, in cancelRequest) (cancelled, error) {
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return cancelled{}, err
	}
	id, err := computer.CancelTask(c, w.ID, in.TaskID)
	return cancelled{id}, err
}

// schedule changes the policy of the workspace and returns the schedule.
func (b backups) schedule(c *server.Call, in scheduleRequest) (scheduleView, error) {
	const most = int64(rules.MaxBackupInterval / time.Second)
	if in.EverySeconds < 0 || in.EverySeconds > most {
		return scheduleView{}, server.Invalid("everySeconds is not in the permitted range")
	}
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return scheduleView{}, err
	}
	command := &computerv1.SetBackupPolicy{}
	if !in.Inherit {
		command.Policy = &computerv1.BackupPolicy{EveryMs: in.EverySeconds * 1000, Keep: in.Keep}
	}
	after, err := server.Ask[*computerv1.Computer](c, service.PlatformCommand(c, entity.KindComputer, w.ID, command))
	return viewSchedule(after), err
}

// commandComputer sends a command to the computer of the workspace in the path. When it returns, the task is durable but not
// done; workspaces.describe shows its progress.
func commandComputer(c *server.Call, m proto.Message) error {
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return err
	}
	_, err = server.Ask[proto.Message](c, service.PlatformCommand(c, entity.KindComputer, w.ID, m))
	return err
}
