package account

import (
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/grant"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
)

// DescribeGrant returns a grant with its tokens; nil if it has not been opened.
func DescribeGrant(r service.Request, g *userv1.Grant) (*grantv1.Grant, error) {
	found, err := service.SendAsPlatform[*grantv1.Grant](r, entity.KindGrant, g.GetId(), &grantv1.DescribeGrant{})
	if entity.IsHidden(err) {
		return nil, nil
	}
	return found, err
}

// LiveGrants returns the grants that are live: they are not revoked, and their codes or tokens have not expired. With an error, it also
// returns each grant if it could not learn whether the grant has expired.
func LiveGrants(r service.Request, all []*userv1.Grant) ([]*userv1.Grant, error) {
	isLive := make([]bool, len(all))
	err := service.ForEach(len(all), func(i int) error {
		found, err := DescribeGrant(r, all[i])
		isLive[i] = all[i].GetRevokedAt() == 0 && (err != nil || grant.EndedAt(found, all[i].GetCreatedAt(), r.Now().UnixMilli()) == 0)
		return err
	})
	var live []*userv1.Grant
	for i, g := range all {
		if isLive[i] {
			live = append(live, g)
		}
	}
	return live, err
}

// GrantedIn returns the slug and name of a grant's workspace: the current ones if the caller may see the workspace, else
// those at the time of the consent, which it also returns with an error.
func GrantedIn(r service.Request, g *userv1.Grant) (slug, name string, err error) {
	seen, err := describeWorkspace(r, g.GetWorkspaceId())
	if err != nil {
		if entity.IsHidden(err) {
			err = nil
		}
		return g.GetWorkspaceSlug(), g.GetWorkspaceName(), err
	}
	return seen.GetWorkspace().GetSlug(), seen.GetWorkspace().GetName(), nil
}

// RevokeGrant revokes a grant of the caller. When it returns, this member refuses the grant's tokens and has ended their streams.
// Errors: not_found.
func RevokeGrant(r service.Request, grantID string) (*userv1.Grant, error) {
	revoked, err := service.Send[*userv1.Grant](r, service.CallerCommand(r, &userv1.RevokeGrant{GrantId: grantID}))
	if err != nil {
		return nil, err
	}
	if err := service.SettleCaller(r); err != nil {
		return nil, err
	}
	r.EndCredential(revoked.GetId())
	return revoked, nil
}
