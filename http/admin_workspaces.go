package http

import (
	"encoding/base64"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	rules "github.com/atelier-run/atelier/entity/workspace"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

type workspaceRecord struct {
	WorkspaceID   string `json:"workspaceId"`
	Slug          string `json:"slug"`
	Name          string `json:"name"`
	Status        string `json:"status"`
	CreatedAt     int64  `json:"createdAt"`
	BillingUserID string `json:"billingUserId"`
	SuspendedAt   int64  `json:"suspendedAt,omitzero"`
}

type tenantView struct {
	workspaceRecord
	Computer computerView `json:"computer"`
}

type computerView struct {
	Status string `json:"status,omitzero"`
	// Task is what is being done to it, Failed what could not be done last.
	Task   *taskView    `json:"task,omitzero"`
	Failed *failureView `json:"failed,omitzero"`
}

type taskView struct {
	ID string `json:"id"`
}

type failureView struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

type statusRequest struct {
	Status string `json:"status"`
}

func (s *Server) listWorkspaces(c *call, in listing) (roster[workspaceRecord], error) {
	return readOwners(c, rules.MembersList, in, c.recordWorkspace)
}

func (c *call) recordWorkspace(id string) (workspaceRecord, error) {
	w, err := c.workspaceOf(id)
	return workspaceRecord{
		id, w.GetSlug(), w.GetName(), statusNames[w.GetStatus()], w.GetCreatedAt(), w.GetBillingUserId(),
		w.GetSuspension().GetAt(),
	}, err
}

var computerNames = map[computerv1.Status]string{
	computerv1.Status_STATUS_PROVISIONING: "provisioning",
	computerv1.Status_STATUS_ACTIVE:       "active",
	computerv1.Status_STATUS_LOST:         "lost",
}

func (s *Server) describeTenant(c *call, _ none) (tenantView, error) {
	w, err := c.tenant()
	if err != nil {
		return tenantView{}, err
	}
	record, err := c.recordWorkspace(w.id)
	if err != nil {
		return tenantView{}, err
	}
	computer, err := c.describeComputer(w.id)
	if err != nil {
		return tenantView{}, err
	}
	view := computerView{Status: computerNames[computer.GetStatus()]}
	if t := computer.GetTask(); t != nil {
		view.Task = &taskView{t.GetId()}
	}
	if f := computer.GetFailed(); f != nil {
		view.Failed = &failureView{f.GetTaskId(), f.GetReason()}
	}
	return tenantView{record, view}, nil
}

func (c *call) describeComputer(id string) (*computerv1.Computer, error) {
	return ask[*computerv1.Computer](c, entity.Command{
		Kind: entity.KindComputer, Identity: id, Principal: entity.Platform(), Message: &computerv1.DescribeComputer{},
	})
}

// changeStatus is an operator's; what follows from a deletion is done when it is answered.
func (s *Server) changeStatus(c *call, in statusRequest) (workspaceRecord, error) {
	status, ok := named(statusNames, in.Status)
	if !ok {
		return workspaceRecord{}, invalid("status must be one of active, archived, retired, deleted")
	}
	return c.changeTenant(&workspacev1.ChangeStatus{Status: status})
}

func (s *Server) suspendTenant(c *call, in suspensionRequest) (workspaceRecord, error) {
	return c.changeTenant(in.command())
}

func (c *call) changeTenant(m proto.Message) (workspaceRecord, error) {
	w, err := c.tenant()
	if err != nil {
		return workspaceRecord{}, err
	}
	if _, err := ask[proto.Message](c, c.asPlatform(entity.KindWorkspace, w.id, m)); err != nil {
		return workspaceRecord{}, err
	}
	if err := c.settle(entity.KindWorkspace, w.id); err != nil {
		return workspaceRecord{}, err
	}
	c.server.workspaces.forget(w.slug)
	return c.recordWorkspace(w.id)
}

// decodeRows reads which page of a workspace's list is asked for; after is what the page before ended with.
func decodeRows(c *call) (listing, error) {
	in, err := decodeOwners(c)
	if err != nil {
		return in, err
	}
	after, err := base64.RawURLEncoding.DecodeString(in.after)
	if err != nil {
		return in, errInvalid
	}
	in.after = string(after)
	return in, nil
}

func (s *Server) listTenantMembers(c *call, in listing) (roster[memberView], error) {
	w, err := c.tenant()
	if err != nil {
		return roster[memberView]{}, err
	}
	page, err := c.rows(w.id, rules.MembersList, in)
	if err != nil {
		return roster[memberView]{}, err
	}
	members, err := entries(page, viewMember)
	return roster[memberView]{Items: members, Next: base64.RawURLEncoding.EncodeToString(page.GetNext())}, err
}

// rows is a page of somebody's list, for an operator.
func (c *call) rows(owner, list string, in listing) (*wirev1.Page, error) {
	return c.server.options.Directory.Rows(c.ctx, owner, &wirev1.List{Name: list, After: []byte(in.after), Limit: in.limit})
}
