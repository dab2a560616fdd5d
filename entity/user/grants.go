package user

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// Limits of grants.
const (
	// MaxGrants is how many live grants a person may have.
	MaxGrants = 200
	// MaxScopes and MaxScopeLength, in bytes, bound what one grant names.
	MaxScopes      = 64
	MaxScopeLength = 128
	// MaxEnded is how many revoked grants, removed machines, and revoked or expired API keys are remembered.
	MaxEnded = 1000
	// GrantPrefix begins a grant's id; a lower-case ULID follows.
	GrantPrefix = "ogr_"

	maxHost = 255
)

var (
	errNoSuchGrant   = entity.Errorf(entity.NotFound, "no such grant")
	errTooManyGrants = entity.Errorf(entity.LimitReached, "at most %d grants can be live at a time", MaxGrants)
	errGrantID       = entity.Errorf(entity.InvalidRequest, "grantId must be %s and a lower-case ULID", GrantPrefix)
	errClient        = entity.Errorf(entity.InvalidRequest, "clientId must have 1 to %d bytes", maxIDLength)
	errHost          = entity.Errorf(entity.InvalidRequest, "redirectHost must have at most %d bytes", maxHost)
	errScopes        = entity.Errorf(entity.InvalidRequest, "scopes must be 1 to %d, each of 1 to %d bytes", MaxScopes, MaxScopeLength)
)

// CheckScopes tells why texts are no scopes of a grant. Errors: invalid_request.
func CheckScopes(scopes []string) error {
	if len(scopes) < 1 || len(scopes) > MaxScopes {
		return errScopes
	}
	for _, scope := range scopes {
		if scope == "" || len(scope) > MaxScopeLength || !utf8.ValidString(scope) || strings.ContainsFunc(scope, notInScope) {
			return errScopes
		}
	}
	return nil
}

func notInScope(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }

func allowGrant(call entity.Call, s *userv1.User, c *userv1.AllowGrant) ([]userv1.Event, error) {
	given := c.GetGrant()
	if _, allowed := s.GetGrants()[given.GetId()]; allowed {
		return nil, nil
	}
	if err := checkGrant(given); err != nil {
		return nil, err
	}
	if liveGrants(s) >= MaxGrants {
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
	case !isULID(given.GetId(), GrantPrefix):
		return errGrantID
	case !isID(given.GetClientId()):
		return errClient
	case len(given.GetRedirectHost()) > maxHost || !utf8.ValidString(given.GetRedirectHost()):
		return errHost
	case given.GetWorkspaceId() == "":
		return errNoWorkspace
	}
	for _, name := range []string{given.GetWorkspaceSlug(), given.GetWorkspaceName()} {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	if err := CheckLabel(given.GetClientName()); err != nil {
		return err
	}
	return CheckScopes(given.GetScopes())
}

func revokeGrant(call entity.Call, s *userv1.User, c *userv1.RevokeGrant) ([]userv1.Event, error) {
	grant, allowed := s.GetGrants()[c.GetGrantId()]
	switch {
	case !allowed:
		return nil, errNoSuchGrant
	case grant.GetRevokedAt() != 0:
		return nil, nil
	}
	return []userv1.Event{grantRevoked(call, grant)}, nil
}

func grantRevoked(call entity.Call, grant *userv1.Grant) *userv1.GrantRevoked {
	by, impersonator := asked(call)
	return &userv1.GrantRevoked{
		GrantId: grant.GetId(), At: call.At(), UserId: call.Identity, WorkspaceId: grant.GetWorkspaceId(),
		ClientName: grant.GetClientName(), By: by, ImpersonatorId: impersonator,
	}
}

// revokeGrantsOf revokes what is live of a workspace.
func revokeGrantsOf(call entity.Call, s *userv1.User, workspaceID string) []userv1.Event {
	var events []userv1.Event
	for _, id := range slices.Sorted(maps.Keys(s.GetGrants())) {
		if grant := s.GetGrants()[id]; grant.GetWorkspaceId() == workspaceID && grant.GetRevokedAt() == 0 {
			events = append(events, grantRevoked(call, grant))
		}
	}
	return events
}

// grantsAfter forgets the grants whose revocation is longest ago, where there are too many.
func grantsAfter(s *userv1.User, e *userv1.GrantRevoked) map[string]*userv1.Grant {
	revoked := copyOfGrant(s.GetGrants()[e.GetGrantId()])
	revoked.Id, revoked.RevokedAt = e.GetGrantId(), e.GetAt()
	return forget(entity.With(s.GetGrants(), e.GetGrantId(), revoked), e.GetGrantId(), (*userv1.Grant).GetRevokedAt)
}

// forget drops those that ended longest ago, where more than MaxEnded have; never the one with the id just.
func forget[V any](all map[string]V, just string, endedAt func(V) int64) map[string]V {
	var ended []string
	for id, v := range all {
		if id != just && endedAt(v) != 0 {
			ended = append(ended, id)
		}
	}
	if len(ended) < MaxEnded {
		return all
	}
	slices.SortFunc(ended, func(a, b string) int {
		return cmp.Or(cmp.Compare(endedAt(all[a]), endedAt(all[b])), strings.Compare(a, b))
	})
	return entity.Without(all, ended[:len(ended)-MaxEnded+1]...)
}

func pageOfGrants(s *userv1.User, c *userv1.ListGrants) *userv1.GrantPage {
	page := &userv1.GrantPage{}
	page.Grants, page.More = pageOf(s.GetGrants(), c)
	return page
}

func liveGrants(s *userv1.User) int {
	count := 0
	for grant := range maps.Values(s.GetGrants()) {
		if grant.GetRevokedAt() == 0 {
			count++
		}
	}
	return count
}

func copyOfGrant(grant *userv1.Grant) *userv1.Grant {
	return &userv1.Grant{
		Id:           grant.GetId(),
		ClientId:     grant.GetClientId(),
		ClientName:   grant.GetClientName(),
		RedirectHost: grant.GetRedirectHost(),
		WorkspaceId:  grant.GetWorkspaceId(),
		Scopes:       grant.GetScopes(),
		CreatedAt:    grant.GetCreatedAt(),
		RevokedAt:    grant.GetRevokedAt(),

		WorkspaceSlug: grant.GetWorkspaceSlug(),
		WorkspaceName: grant.GetWorkspaceName(),
	}
}
