package workspace

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MaxNameLength is the longest name, in characters (specification, Limits: 1 to 200).
const MaxNameLength = 200

var (
	errNoCreator  = entity.Errorf(entity.InvalidRequest, "creatorId is empty")
	errNameText   = entity.Errorf(entity.InvalidRequest, "name has a control character or is not UTF-8")
	errNameLength = entity.Errorf(entity.InvalidRequest, "name must have 1 to %d characters", MaxNameLength)
	errStatus     = entity.Errorf(entity.InvalidRequest, "status must be active, archived, retired or deleted")
	errNotReady   = entity.Errorf(entity.InvalidRequest, "status: the workspace's computer is not ready yet")
	errTier       = entity.Errorf(entity.InvalidRequest, "tier is none of the tiers")
)

// CheckName tells why a name is no workspace's; nil where it may be one.
func CheckName(name string) *entity.Error {
	switch {
	case !utf8.ValidString(name):
		return errNameText
	case strings.ContainsFunc(name, unicode.IsControl):
		return errNameText
	case name == "" || utf8.RuneCountInString(name) > MaxNameLength:
		return errNameLength
	}
	return nil
}

func create(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.CreateWorkspace,
) ([]workspacev1.Event, error) {
	switch {
	case exists(s):
		return nil, nil
	case c.GetCreatorId() == "":
		return nil, errNoCreator
	}
	if err := CheckName(c.GetName()); err != nil {
		return nil, err
	}
	return []workspacev1.Event{&workspacev1.WorkspaceCreated{
		Slug:         c.GetSlug(),
		Name:         c.GetName(),
		CreatorId:    c.GetCreatorId(),
		CreatorEmail: c.GetCreatorEmail(),
		CreatorName:  c.GetCreatorName(),
		At:           call.At(),

		ImpersonatorId: c.GetImpersonatorId(),
	}}, nil
}

func created(next *workspacev1.Workspace, e *workspacev1.WorkspaceCreated) {
	next.Slug = e.GetSlug()
	next.Name = e.GetName()
	next.Status = workspacev1.Status_STATUS_PROVISIONING
	next.BillingUserId = e.GetCreatorId()
	next.CreatedAt = e.GetAt()
	next.Members = map[string]*workspacev1.Membership{e.GetCreatorId(): {
		UserId:   e.GetCreatorId(),
		Role:     workspacev1.Role_ROLE_OWNER,
		JoinedAt: e.GetAt(),
		Email:    e.GetCreatorEmail(),
		Name:     e.GetCreatorName(),
		// Nothing happens to a workspace before its creation.
		Position: 1,
		Billing:  true,
	}}
}

func reportReady(call entity.Call, s *workspacev1.Workspace) ([]workspacev1.Event, error) {
	switch s.GetStatus() {
	case workspacev1.Status_STATUS_PROVISIONING, workspacev1.Status_STATUS_UNHEALTHY:
		return []workspacev1.Event{&workspacev1.WorkspaceReady{At: call.At()}}, nil
	default:
		return nil, nil
	}
}

func reportUnhealthy(call entity.Call, s *workspacev1.Workspace) ([]workspacev1.Event, error) {
	if s.GetStatus() != workspacev1.Status_STATUS_ACTIVE {
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.WorkspaceUnhealthy{At: call.At()}}, nil
}

func changeStatus(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.ChangeStatus,
) ([]workspacev1.Event, error) {
	switch c.GetStatus() {
	case workspacev1.Status_STATUS_ACTIVE:
		if s.GetStatus() == workspacev1.Status_STATUS_PROVISIONING {
			return nil, errNotReady
		}
	case workspacev1.Status_STATUS_ARCHIVED, workspacev1.Status_STATUS_RETIRED, workspacev1.Status_STATUS_DELETED:
	default:
		return nil, errStatus
	}
	if c.GetStatus() == s.GetStatus() {
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.StatusChanged{
		Status: c.GetStatus(), At: call.At(), Slug: s.GetSlug(),
		BillingUserId: s.GetBillingUserId(),
	}}, nil
}

// rename trusts that the slug was claimed, and so that it is well formed.
func rename(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.RenameWorkspace,
) ([]workspacev1.Event, error) {
	slug, name := c.GetSlug(), c.GetName()
	if slug == "" {
		slug = s.GetSlug()
	}
	if name == "" {
		name = s.GetName()
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if c.GetNameOnly() && slug != s.GetSlug() {
		return nil, errRenamed
	}
	if slug == s.GetSlug() && name == s.GetName() {
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.WorkspaceRenamed{
		OldSlug: s.GetSlug(), NewSlug: slug, Name: name, At: call.At(),
	}}, nil
}

func setDefaultModel(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.SetDefaultModel,
) ([]workspacev1.Event, error) {
	_, known := workspacev1.Tier_name[int32(c.GetTier())]
	switch {
	case !known, c.GetTier() == workspacev1.Tier_TIER_UNSPECIFIED:
		return nil, errTier
	case c.GetTier() == s.GetDefaultTier():
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.DefaultModelChanged{Tier: c.GetTier(), At: call.At()}}, nil
}
