package workspace

import (
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// MaxReasonLength is the greatest length of the reason of a suspension, in characters.
const MaxReasonLength = 1000

var (
	errNoCreator = entity.Errorf(entity.InvalidRequest, "creatorId is empty")
	errStatus    = entity.Errorf(entity.InvalidRequest, "status must be active, archived, retired or deleted")
	errNotReady  = entity.Errorf(entity.InvalidRequest, "status: the workspace's computer is not ready yet")
	errTier      = entity.Errorf(entity.InvalidRequest, "tier is not a known tier")
	errReason    = entity.Errorf(entity.InvalidRequest, "reason must be UTF-8 of at most %d characters", MaxReasonLength)
	errOperator  = entity.Errorf(entity.Forbidden, "an operator has suspended the workspace; only an operator can change or end this suspension")
)

// EffectiveTier returns the tier of turns in a workspace if nothing else sets a tier.
func EffectiveTier(s *workspacev1.Workspace) workspacev1.Tier {
	if tier := s.GetDefaultTier(); tier != workspacev1.Tier_TIER_UNSPECIFIED {
		return tier
	}
	return workspacev1.Tier_TIER_BALANCED
}

// CheckName returns an error unless a text may be the name of a workspace. Errors: invalid_request.
func CheckName(name string) *entity.Error {
	return entity.CheckText("name", name, 1, entity.MaxNameLength)
}

// create creates the workspace. It has no effect if the workspace exists. Errors: invalid_request.
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

func applyCreated(next *workspacev1.Workspace, e *workspacev1.WorkspaceCreated) {
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
		// The creation is always the first event of the stream.
		Position: 1,
		Billing:  true,
	}}
}

// reportReady makes a provisioning or unhealthy workspace active. It does not change other statuses.
func reportReady(call entity.Call, s *workspacev1.Workspace) ([]workspacev1.Event, error) {
	switch s.GetStatus() {
	case workspacev1.Status_STATUS_PROVISIONING, workspacev1.Status_STATUS_UNHEALTHY:
		return []workspacev1.Event{&workspacev1.WorkspaceReady{At: call.At()}}, nil
	default:
		return nil, nil
	}
}

// reportUnhealthy makes an active workspace unhealthy. It does not change other statuses.
func reportUnhealthy(call entity.Call, s *workspacev1.Workspace) ([]workspacev1.Event, error) {
	if s.GetStatus() != workspacev1.Status_STATUS_ACTIVE {
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.WorkspaceUnhealthy{At: call.At()}}, nil
}

// changeStatus sets the status that an operator has chosen. Errors: invalid_request, also for active while the computer is
// being provisioned.
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
	changed := &workspacev1.StatusChanged{
		Status: c.GetStatus(), At: call.At(), Slug: s.GetSlug(),
		BillingUserId: s.GetBillingUserId(),
	}
	closes := isClosedStatus(c.GetStatus())
	if closes {
		changed.SessionStopId = sessionStopID(call)
	}
	if closes || s.GetSuspension() == nil {
		changed.AppIds = appIDs(s)
	}
	return []workspacev1.Event{changed}, nil
}

// rename does not validate the slug: the workspace has claimed it before, see package slug. Errors: invalid_request, and
// unavailable if the workspace was renamed since the requester read its slug.
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

// setDefaultModel sets the default tier of sessions. Errors: invalid_request.
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

// suspend decides a suspension by an owner or an operator. An operator may take over the suspension by an owner; an owner
// may not change the suspension by an operator. Errors: invalid_request, forbidden.
func suspend(call entity.Call, s *workspacev1.Workspace, c *workspacev1.Suspend) ([]workspacev1.Event, error) {
	if !utf8.ValidString(c.GetReason()) || utf8.RuneCountInString(c.GetReason()) > MaxReasonLength {
		return nil, errReason
	}
	before := s.GetSuspension()
	next := &workspacev1.Suspension{At: call.At(), Reason: c.GetReason(), ByOperator: entity.IsPlatform(call.Principal)}
	if before != nil {
		next.At = before.GetAt()
	}
	switch {
	case before.GetByOperator() && !next.GetByOperator():
		return nil, errOperator
	case proto.Equal(before, next):
		return nil, nil
	}
	suspended := &workspacev1.WorkspaceSuspended{Suspension: next}
	if before == nil {
		suspended.SessionStopId, suspended.AppIds = sessionStopID(call), appIDs(s)
	}
	return []workspacev1.Event{suspended}, nil
}

// resume ends a suspension. Errors: forbidden if an operator has suspended the workspace and the requester is not one.
func resume(call entity.Call, s *workspacev1.Workspace) ([]workspacev1.Event, error) {
	switch {
	case s.GetSuspension() == nil:
		return nil, nil
	case s.GetSuspension().GetByOperator() && !entity.IsPlatform(call.Principal):
		return nil, errOperator
	}
	resumed := &workspacev1.WorkspaceResumed{At: call.At()}
	if !isClosedStatus(s.GetStatus()) {
		resumed.AppIds = appIDs(s)
	}
	return []workspacev1.Event{resumed}, nil
}
