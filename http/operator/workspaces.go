package operator

import (
	"encoding/base64"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	rules "github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/computer"
)

// workspaces serves the workspaces of the installation.
type workspaces struct {
	directory Directory
	progress  Progress
}

func (w workspaces) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: adminWorkspaces, Scope: server.ScopeOperator, Summary: "List the workspaces",
			Handler: server.Answer(http.StatusOK, decodeOwnersPage, w.list)},
		{Method: http.MethodGet, Path: adminWorkspace, Scope: server.ScopeOperator, Summary: "Tell how a workspace and its computer are",
			Handler: server.Answer(http.StatusOK, server.Nothing, w.describe)},
		{Method: http.MethodPut, Path: adminWorkspace + "/status", Scope: server.ScopeOperator, Idempotent: true, Summary: "Archive, retire, delete or reopen a workspace",
			Handler: server.Answer(http.StatusOK, server.Body[statusRequest], w.changeStatus)},
		{Method: http.MethodPut, Path: adminWorkspace + "/suspension", Scope: server.ScopeOperator, Idempotent: true, Summary: "Suspend a workspace, or take it up again",
			Handler: server.Answer(http.StatusOK, server.Checked(api.CheckSuspension), w.changeSuspension)},
		{Method: http.MethodGet, Path: adminWorkspace + "/members", Scope: server.ScopeOperator, Summary: "List a workspace's members",
			Handler: server.Answer(http.StatusOK, decodeRowsPage, w.listMembers)},
	}
}

type workspaceRecord struct {
	WorkspaceID   string `json:"workspaceId"`
	Slug          string `json:"slug"`
	Name          string `json:"name"`
	Status        string `json:"status"`
	CreatedAt     int64  `json:"createdAt"`
	BillingUserID string `json:"billingUserId"`
	SuspendedAt   int64  `json:"suspendedAt,omitzero"`
}

type workspaceView struct {
	workspaceRecord
	Computer computerView `json:"computer"`
}

type computerView struct {
	Status string `json:"status,omitzero"`
	// Task is the task in progress, Failed the last one that failed.
	Task   *taskView    `json:"task,omitzero"`
	Failed *failureView `json:"failed,omitzero"`
}

type taskView struct {
	ID string `json:"id"`
	// Kind is provision, back_up, back_up_and_replace, replace, restore, retire or verify.
	Kind     string `json:"kind"`
	BackupID string `json:"backupId,omitzero"`
	// DoneBytes and TotalBytes are the progress of a backup or a restore; see Progress.
	DoneBytes  int64 `json:"doneBytes,omitzero"`
	TotalBytes int64 `json:"totalBytes,omitzero"`
	Percent    int64 `json:"percent,omitzero"`
}

type failureView struct {
	ID     string `json:"id"`
	Kind   string `json:"kind,omitzero"`
	Reason string `json:"reason"`
	At     int64  `json:"at"`
}

// viewFailure returns the view of the last task, if it failed; nil if it did not.
func viewFailure(f *computerv1.TaskFailed) *failureView {
	if f == nil {
		return nil
	}
	return &failureView{f.GetTaskId(), taskKindName(f.GetKind()), f.GetReason(), f.GetAt()}
}

// taskKindName returns the name of a kind of tasks; empty if it is not known.
func taskKindName(k computerv1.TaskKind) string {
	if k == computerv1.TaskKind_TASK_KIND_UNSPECIFIED {
		return ""
	}
	return strings.ToLower(strings.TrimPrefix(k.String(), "TASK_KIND_"))
}

type statusRequest struct {
	Status string `json:"status"`
}

func (w workspaces) list(c *server.Call, in server.Listing) (operatorPage[workspaceRecord], error) {
	return readOwners(c, w.directory, rules.MembersList, in, func(id string) (workspaceRecord, error) { return viewWorkspace(c, id) })
}

func viewWorkspace(c *server.Call, id string) (workspaceRecord, error) {
	w, err := service.DescribeWorkspace(c, id)
	return workspaceRecord{
		id, w.GetSlug(), w.GetName(), api.StatusNames[w.GetStatus()], w.GetCreatedAt(), w.GetBillingUserId(),
		w.GetSuspension().GetAt(),
	}, err
}

var computerNames = map[computerv1.Status]string{
	computerv1.Status_STATUS_PROVISIONING: "provisioning",
	computerv1.Status_STATUS_ACTIVE:       "active",
	computerv1.Status_STATUS_LOST:         "lost",
}

func (w workspaces) describe(c *server.Call, _ server.None) (workspaceView, error) {
	of, err := resolvePathWorkspace(c)
	if err != nil {
		return workspaceView{}, err
	}
	record, err := viewWorkspace(c, of.ID)
	if err != nil {
		return workspaceView{}, err
	}
	state, err := computer.Describe(c, of.ID)
	if err != nil {
		return workspaceView{}, err
	}
	view := computerView{Status: computerNames[state.GetStatus()], Failed: viewFailure(state.GetFailed())}
	if t := state.GetTask(); t != nil {
		view.Task = &taskView{ID: t.GetId(), Kind: taskKindName(t.GetKind()), BackupID: t.GetBackupId()}
		done, total, _ := w.progress(t.GetId())
		view.Task.DoneBytes, view.Task.TotalBytes, view.Task.Percent = done, total, done*100/max(total, 1)
	}
	return workspaceView{record, view}, nil
}

// changeStatus changes the status of a workspace. When it returns, the reactions to a deletion are done.
func (w workspaces) changeStatus(c *server.Call, in statusRequest) (workspaceRecord, error) {
	status, ok := api.ParseName(api.StatusNames, in.Status)
	if !ok {
		return workspaceRecord{}, server.Invalid("status must be one of active, archived, retired, deleted")
	}
	return changeWorkspace(c, &workspacev1.ChangeStatus{Status: status})
}

func (w workspaces) changeSuspension(c *server.Call, in api.SuspensionRequest) (workspaceRecord, error) {
	return changeWorkspace(c, in.Command())
}

func changeWorkspace(c *server.Call, m proto.Message) (workspaceRecord, error) {
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return workspaceRecord{}, err
	}
	if _, err := server.Ask[proto.Message](c, service.PlatformCommand(c, entity.KindWorkspace, w.ID, m)); err != nil {
		return workspaceRecord{}, err
	}
	if err := c.Settle(entity.KindWorkspace, w.ID); err != nil {
		return workspaceRecord{}, err
	}
	c.InvalidateSlug(w.Slug)
	return viewWorkspace(c, w.ID)
}

// decodeRowsPage decodes the parameters after, which is the position at which the previous page ended, and limit.
func decodeRowsPage(c *server.Call) (server.Listing, error) {
	in, err := decodeOwnersPage(c)
	if err != nil {
		return in, err
	}
	after, err := base64.RawURLEncoding.DecodeString(in.After)
	if err != nil {
		return in, server.ErrInvalidCursor
	}
	in.After = string(after)
	return in, nil
}

func (w workspaces) listMembers(c *server.Call, in server.Listing) (operatorPage[api.MemberView], error) {
	of, err := resolvePathWorkspace(c)
	if err != nil {
		return operatorPage[api.MemberView]{}, err
	}
	page, err := readRows(c, w.directory, of.ID, rules.MembersList, in)
	if err != nil {
		return operatorPage[api.MemberView]{}, err
	}
	members, err := server.DecodeRows(page, api.ViewMember)
	return operatorPage[api.MemberView]{Items: members, Next: base64.RawURLEncoding.EncodeToString(page.GetNext())}, err
}
