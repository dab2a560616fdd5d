package workspace

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var (
	errNoMember    = entity.Errorf(entity.NotFound, "no such member")
	errRole        = entity.Errorf(entity.InvalidRequest, "role must be owner, editor or viewer")
	errBillingUser = entity.Errorf(entity.BillingUser, "the billing user of a workspace must remain its owner")
	errFinalOwner  = entity.Errorf(entity.FinalOwner, "the last owner of a workspace must remain its owner")
	errDisabled    = entity.Errorf(entity.InvalidRequest, "the account of this member is disabled: an operator has to enable it before the member can become an owner")
)

// changeRole gives a member another role. It revokes the invitations of the member if the new role may not invite. A member with a
// disabled account becomes no owner, because the account could be enabled again later, with an unexpected role. Errors: invalid_request,
// forbidden, not_found, billing_user, final_owner.
func changeRole(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ChangeRole) ([]workspacev1.Event, error) {
	member, found := s.GetMembers()[c.GetUserId()]
	switch {
	case !isRole(c.GetRole()):
		return nil, errRole
	case !mayGive(call.Principal, c.GetRole()):
		return nil, errBeyondGrants
	case !found:
		return nil, errNoMember
	case member.GetRole() == c.GetRole():
		return nil, nil
	case c.GetRole() == workspacev1.Role_ROLE_OWNER && member.GetDisabled():
		return nil, errDisabled
	}
	if err := checkMayLoseOwner(s, member); err != nil {
		return nil, err
	}
	events := []workspacev1.Event{&workspacev1.MemberRoleChanged{
		UserId: c.GetUserId(), Role: c.GetRole(), At: call.At(), LockRemovalId: lockRemovalID(call, member.GetRole(), c.GetRole()),
	}}
	if !mayInvite(c.GetRole()) {
		events = append(events, revokeInvitationsBy(call, s, c.GetUserId())...)
	}
	return events, nil
}

// removeMember removes a member and revokes the invitations of that member. It has no effect if the person is not a member. Errors: billing_user, final_owner.
func removeMember(
	call entity.Call, s *workspacev1.Workspace, c *workspacev1.RemoveMember,
) ([]workspacev1.Event, error) {
	member, found := s.GetMembers()[c.GetUserId()]
	if !found {
		return nil, nil
	}
	if err := checkMayLoseOwner(s, member); err != nil {
		return nil, err
	}
	return append([]workspacev1.Event{&workspacev1.MemberRemoved{
		UserId: c.GetUserId(), At: call.At(),
		LockRemovalId: lockRemovalID(call, member.GetRole(), workspacev1.Role_ROLE_UNSPECIFIED),
	}}, revokeInvitationsBy(call, s, c.GetUserId())...), nil
}

// checkMayLoseOwner returns an error if the member must remain an owner: the billing user, and the last owner. Owners who
// cannot sign in do not count.
func checkMayLoseOwner(s *workspacev1.Workspace, member *workspacev1.Membership) error {
	switch {
	case member.GetUserId() == s.GetBillingUserId():
		return errBillingUser
	case member.GetRole() != workspacev1.Role_ROLE_OWNER:
		return nil
	}
	for id, other := range s.GetMembers() {
		if id != member.GetUserId() && other.GetRole() == workspacev1.Role_ROLE_OWNER && !other.GetDisabled() {
			return nil
		}
	}
	return errFinalOwner
}

// updateMember records the current address and name of a member, which the user entity reports.
func updateMember(s *workspacev1.Workspace, c *workspacev1.UpdateMember) ([]workspacev1.Event, error) {
	person := c.GetPerson()
	member, found := s.GetMembers()[person.GetUserId()]
	if !found || member.GetEmail() == person.GetEmail() && member.GetName() == person.GetName() {
		return nil, nil
	}
	return []workspacev1.Event{&workspacev1.MemberUpdated{Person: person}}, nil
}

// setMemberDisabled records whether a member can sign in, which the user entity reports. It revokes the invitations of a
// disabled member.
func setMemberDisabled(call entity.Call, s *workspacev1.Workspace, c *workspacev1.SetMemberDisabled) []workspacev1.Event {
	member, found := s.GetMembers()[c.GetUserId()]
	if !found || member.GetDisabled() == c.GetDisabled() {
		return nil
	}
	events := []workspacev1.Event{&workspacev1.MemberDisabledSet{UserId: c.GetUserId(), Disabled: c.GetDisabled(), At: call.At()}}
	if c.GetDisabled() {
		events = append(events, revokeInvitationsBy(call, s, c.GetUserId())...)
	}
	return events
}

func isRole(role workspacev1.Role) bool {
	_, known := workspacev1.Role_name[int32(role)]
	return known && role != workspacev1.Role_ROLE_UNSPECIFIED
}

// matchesMember reports whether the email or the name of a member contains the search text, ignoring case.
func matchesMember(row []byte, search string) bool {
	var member workspacev1.Membership
	if proto.Unmarshal(row, &member) != nil {
		return false
	}
	search = strings.ToLower(search)
	return strings.Contains(strings.ToLower(member.GetEmail()), search) || strings.Contains(strings.ToLower(member.GetName()), search)
}

// lockRemovalID returns the id of the task that removes the file locks of a member after a change of role. It is empty if
// the member keeps the right to change files, or did not have it.
func lockRemovalID(call entity.Call, from, to workspacev1.Role) string {
	if !mayWriteFiles(from) || mayWriteFiles(to) {
		return ""
	}
	return "locks." + strconv.FormatUint(call.Version, 10)
}

func mayWriteFiles(role workspacev1.Role) bool {
	return hasCapability(unrestricted, role, entity.FilesWrite)
}

// updateLockRemoval adds the removal of a person's locks to the next state if taskID is set, and cancels it if the person
// may change files again. at is the time of the request, in milliseconds since the Unix epoch.
func updateLockRemoval(next *workspacev1.Workspace, userID, taskID string, at int64) {
	switch {
	case taskID != "":
		next.LockRemovals = entity.With(next.GetLockRemovals(), userID, &workspacev1.LockRemoval{
			UserId: userID, TaskId: taskID, RequestedAt: at,
		})
	case next.GetLockRemovals()[userID] != nil && mayWriteFiles(next.GetMembers()[userID].GetRole()):
		next.LockRemovals = entity.Without(next.GetLockRemovals(), userID)
	}
}

// reportLocksRemoved completes the task of the command. A report of another task has no effect.
func reportLocksRemoved(call entity.Call, s *workspacev1.Workspace, c *workspacev1.ReportLocksRemoved) []workspacev1.Event {
	if removal := s.GetLockRemovals()[c.GetUserId()]; removal == nil || removal.GetTaskId() != c.GetTaskId() {
		return nil
	}
	return []workspacev1.Event{&workspacev1.LocksRemoved{UserId: c.GetUserId(), At: call.At()}}
}
