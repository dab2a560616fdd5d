package user

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxGrants is the greatest number of grants of a user that are not revoked.
	MaxGrants = 200
	// GrantPrefix is the prefix of the id of a grant. A ULID follows.
	GrantPrefix = "ogr_"

	maxHost = 255
)

var (
	errNoSuchGrant   = entity.Errorf(entity.NotFound, "no such grant")
	errTooManyGrants = entity.Errorf(entity.LimitReached, "at most %d grants can be live at a time", MaxGrants)
	errGrantID       = entity.Errorf(entity.InvalidRequest, "grantId must be %s and a lower-case ULID", GrantPrefix)
	errClient        = entity.Errorf(entity.InvalidRequest, "clientId must have 1 to %d bytes", entity.MaxIDLength)
	errHost          = entity.Errorf(entity.InvalidRequest, "redirectHost must have at most %d bytes", maxHost)
)

// allowGrant records a consent. It has no effect if the grant exists. Errors: invalid_request, limit_reached.
func allowGrant(call entity.Call, s *userv1.User, c *userv1.AllowGrant) ([]userv1.Event, error) {
	given := c.GetGrant()
	if _, allowed := s.GetGrants()[given.GetId()]; allowed {
		return nil, nil
	}
	if err := checkGrant(given); err != nil {
		return nil, err
	}
	if countLiveGrants(s) >= MaxGrants {
		return nil, errTooManyGrants
	}
	return []userv1.Event{&userv1.GrantAllowed{UserId: call.Identity, Grant: &userv1.Grant{
		Id: given.GetId(), ClientId: given.GetClientId(), ClientName: given.GetClientName(),
		RedirectHost: given.GetRedirectHost(), WorkspaceId: given.GetWorkspaceId(), Scopes: given.GetScopes(),
		CreatedAt: call.At(), WorkspaceSlug: given.GetWorkspaceSlug(), WorkspaceName: given.GetWorkspaceName(),
	}}}, nil
}

func checkGrant(given *userv1.Grant) error {
	switch {
	case !hasULID(given.GetId(), GrantPrefix):
		return errGrantID
	case !entity.IsID(given.GetClientId()):
		return errClient
	case len(given.GetRedirectHost()) > maxHost || !utf8.ValidString(given.GetRedirectHost()):
		return errHost
	case given.GetWorkspaceId() == "":
		return errNoWorkspace
	}
	for _, name := range []string{given.GetWorkspaceSlug(), given.GetWorkspaceName()} {
		if err := entity.CheckName(name); err != nil {
			return err
		}
	}
	if err := entity.CheckLabel(given.GetClientName()); err != nil {
		return err
	}
	return entity.CheckScopes(given.GetScopes())
}

// revokeGrant revokes a grant. It has no effect if the grant is revoked. Errors: not_found.
func revokeGrant(call entity.Call, s *userv1.User, c *userv1.RevokeGrant) ([]userv1.Event, error) {
	grant, allowed := s.GetGrants()[c.GetGrantId()]
	switch {
	case !allowed:
		return nil, errNoSuchGrant
	case grant.GetRevokedAt() != 0:
		return nil, nil
	}
	return []userv1.Event{newGrantRevoked(call, grant)}, nil
}

func newGrantRevoked(call entity.Call, grant *userv1.Grant) *userv1.GrantRevoked {
	by, impersonator := requester(call)
	return &userv1.GrantRevoked{
		GrantId: grant.GetId(), At: call.At(), UserId: call.Identity, WorkspaceId: grant.GetWorkspaceId(),
		ClientName: grant.GetClientName(), By: by, ImpersonatorId: impersonator,
	}
}

// revokeGrantsFor returns the events that revoke all live grants for a workspace.
func revokeGrantsFor(call entity.Call, s *userv1.User, workspaceID string) []userv1.Event {
	var events []userv1.Event
	for _, id := range slices.Sorted(maps.Keys(s.GetGrants())) {
		if grant := s.GetGrants()[id]; grant.GetWorkspaceId() == workspaceID && grant.GetRevokedAt() == 0 {
			events = append(events, newGrantRevoked(call, grant))
		}
	}
	return events
}

// grantsAfter returns the grants after one was revoked, without the oldest of too many revoked grants.
func grantsAfter(s *userv1.User, e *userv1.GrantRevoked) map[string]*userv1.Grant {
	revoked := entity.ShallowCopy(s.GetGrants()[e.GetGrantId()])
	revoked.Id, revoked.RevokedAt = e.GetGrantId(), e.GetAt()
	return dropOldestEnded(entity.With(s.GetGrants(), e.GetGrantId(), revoked), e.GetGrantId(), (*userv1.Grant).GetRevokedAt)
}

func pageOfGrants(s *userv1.User, c *userv1.ListGrants) *userv1.GrantPage {
	reply := &userv1.GrantPage{}
	reply.Grants, reply.More = page(s.GetGrants(), c)
	return reply
}

func countLiveGrants(s *userv1.User) int {
	count := 0
	for grant := range maps.Values(s.GetGrants()) {
		if grant.GetRevokedAt() == 0 {
			count++
		}
	}
	return count
}
