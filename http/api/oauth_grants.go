package api

import (
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/grant"
	"github.com/atelier-run/atelier/http/server"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Grants serves the access that the caller granted to OAuth clients.
type Grants struct{}

func (g Grants) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/user/oauth-grants", Scope: server.ScopeHuman, Summary: "List the caller's OAuth grants",
			Handler: server.Answer(http.StatusOK, server.DecodePage, g.list)},
		{Method: http.MethodDelete, Path: "/v1/user/oauth-grants/{grantId}", Scope: server.ScopeHuman, Idempotent: true, Summary: "Revoke one of the caller's OAuth grants",
			Handler: server.Answer(http.StatusOK, server.Nothing, g.Revoke)},
	}
}

type grantView struct {
	ID           string        `json:"id"`
	ClientID     string        `json:"clientId"`
	ClientName   string        `json:"clientName"`
	RedirectHost string        `json:"redirectHost"`
	Workspace    grantedInView `json:"workspace"`
	Scopes       []string      `json:"scopes"`
	CreatedAt    int64         `json:"createdAt"`
	LastUsedAt   int64         `json:"lastUsedAt,omitzero"`
	RevokedAt    int64         `json:"revokedAt,omitzero"`
}

type grantedInView struct {
	Slug string `json:"slug"`
	Name string `json:"name"`
}

type grantRevoked struct {
	GrantID   string `json:"grantId"`
	RevokedAt int64  `json:"revokedAt"`
}

func (g Grants) list(c *server.Call, in server.Listing) (server.Collection[grantView], error) {
	found, err := server.Ask[*userv1.GrantPage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(),
		Message: &userv1.ListGrants{After: in.After, Limit: in.Limit},
	})
	if err != nil {
		return server.Collection[grantView]{}, err
	}
	items := make([]grantView, len(found.GetGrants()))
	err = server.ForEach(len(items), func(i int) (err error) {
		items[i], err = viewGrant(c, found.GetGrants()[i])
		return err
	})
	return server.Page(c, in, items, NextID(found.GetGrants(), found.GetMore())), err
}

// viewGrant returns a grant as JSON. Only the entity of the grant knows its last use, and when its last code or token expires, with
// which it ends like with a revocation.
func viewGrant(c *server.Call, g *userv1.Grant) (grantView, error) {
	view := grantView{
		ID: g.GetId(), ClientID: g.GetClientId(), ClientName: g.GetClientName(), RedirectHost: g.GetRedirectHost(),
		Scopes: g.GetScopes(), CreatedAt: g.GetCreatedAt(), RevokedAt: g.GetRevokedAt(),
	}
	var err error
	if view.Workspace, err = GrantedIn(c, g); err != nil {
		return view, err
	}
	used, err := describeGrant(c, g)
	if err != nil {
		return view, err
	}
	view.LastUsedAt = used.GetLastUsedAt()
	if view.RevokedAt == 0 {
		view.RevokedAt = grant.EndedAt(used, g.GetCreatedAt(), c.Now().UnixMilli())
	}
	return view, nil
}

// describeGrant returns the grant with its tokens; nil if it has not been opened.
func describeGrant(c *server.Call, g *userv1.Grant) (*grantv1.Grant, error) {
	found, err := server.Ask[*grantv1.Grant](c, entity.Command{
		Kind: entity.KindGrant, Identity: g.GetId(), Principal: entity.Platform(), Message: &grantv1.DescribeGrant{},
	})
	if IsHidden(err) {
		return nil, nil
	}
	return found, err
}

// LiveGrants returns the grants that are live: they are not revoked, and their codes or tokens have not expired. With an error, it also
// returns the grants of which it could not learn whether they have expired.
func LiveGrants(c *server.Call, all []*userv1.Grant) ([]*userv1.Grant, error) {
	isLive := make([]bool, len(all))
	err := server.ForEach(len(all), func(i int) error {
		found, err := describeGrant(c, all[i])
		isLive[i] = all[i].GetRevokedAt() == 0 && (err != nil || grant.EndedAt(found, all[i].GetCreatedAt(), c.Now().UnixMilli()) == 0)
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

// GrantedIn returns the name and slug of a grant's workspace: the current ones if the caller may see the workspace, else
// those at the time of the consent, which it also returns with an error.
func GrantedIn(c *server.Call, g *userv1.Grant) (grantedInView, error) {
	seen, err := server.Ask[*workspacev1.Description](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: g.GetWorkspaceId(), Message: &workspacev1.DescribeWorkspace{},
	})
	if err != nil {
		if IsHidden(err) {
			err = nil
		}
		return grantedInView{g.GetWorkspaceSlug(), g.GetWorkspaceName()}, err
	}
	return grantedInView{seen.GetWorkspace().GetSlug(), seen.GetWorkspace().GetName()}, nil
}

// Revoke revokes a grant of the caller. When it returns, this member refuses the grant's tokens and has ended their streams.
// Errors: not_found.
func (g Grants) Revoke(c *server.Call, _ server.None) (grantRevoked, error) {
	revoked, err := server.Ask[*userv1.Grant](c, callerCommand(c, &userv1.RevokeGrant{GrantId: c.Variable("grantId")}))
	if err != nil {
		return grantRevoked{}, err
	}
	if err := settleCaller(c); err != nil {
		return grantRevoked{}, err
	}
	c.EndCredential(revoked.GetId())
	return grantRevoked{revoked.GetId(), revoked.GetRevokedAt()}, nil
}
