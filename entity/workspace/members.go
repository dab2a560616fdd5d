package workspace

import (
	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var (
	errNoMember    = entity.Errorf(entity.NotFound, "no such member")
	errRole        = entity.Errorf(entity.InvalidRequest, "role must be owner, editor or viewer")
	errBillingUser = entity.Errorf(entity.BillingUser, "who pays for the workspace stays its owner")
	errFinalOwner  = entity.Errorf(entity.FinalOwner, "the last owner of a workspace stays its owner")
)

// changeRole. Errors: not_found, billing_user, final_owner.
func changeRole(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ChangeRole) ([]workspacev1.Event, error) {
	member, found := s.GetMembers()[c.GetUserId()]
	switch {
	case !isRole(c.GetRole()):
		return nil, errRole
	case !found:
		return nil, errNoMember
	case member.GetRole() == c.GetRole():
		return nil, nil
	}
	if err := dispensable(s, member); err != nil {
		return nil, err
	}
	return []workspacev1.Event{&workspacev1.MemberRoleChanged{
		UserId: c.GetUserId(), Role: c.GetRole(), At: call.At(), LockRemovalId: lockRemovalID(call, member.GetRole(), c.GetRole()),
	}}, nil
}

// removeMember. Errors: billing_user, final_owner.
func removeMember(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.RemoveMember,
) ([]workspacev1.Event, error) {
	member, found := s.GetMembers()[c.GetUserId()]
	if !found {
		return nil, nil
	}
	if err := dispensable(s, member); err != nil {
		return nil, err
	}
	return []workspacev1.Event{&workspacev1.MemberRemoved{
		UserId: c.GetUserId(), At: call.At(),
		LockRemovalId: lockRemovalID(call, member.GetRole(), workspacev1.Role_ROLE_UNSPECIFIED),
	}}, nil
}

// dispensable tells why a workspace cannot do without a member as an owner; nil where it can.
func dispensable(s *workspacev1.Workspace, member *workspacev1.Membership) error {
	switch {
	case member.GetUserId() == s.GetBillingUserId():
		return errBillingUser
	case member.GetRole() != workspacev1.Role_ROLE_OWNER:
		return nil
	}
	for id, other := range s.GetMembers() {
		if id != member.GetUserId() && other.GetRole() == workspacev1.Role_ROLE_OWNER {
			return nil
		}
	}
	return errFinalOwner
}

func updateMember(s *workspacev1.Workspace, c *workspacev1.UpdateMember) ([]workspacev1.Event, error) {
	person := c.GetPerson()
	member, found := s.GetMembers()[person.GetUserId()]
	if !found || member.GetEmail() == person.GetEmail() && member.GetName() == person.GetName() {
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.MemberUpdated{Person: person}}, nil
}

func isRole(role workspacev1.Role) bool {
	_, known := workspacev1.Role_name[int32(role)]
	return known && role != workspacev1.Role_ROLE_UNSPECIFIED
}
