package api

import (
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/grant"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
)

// grants serves the access that the caller granted to OAuth clients.
type grants struct{}

func (g grants) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/user/oauth-grants", Scope: server.ScopeHuman, Summary: "List the caller's OAuth grants",
			Handler: server.Answer(http.StatusOK, server.DecodePage, g.list)},
		{Method: http.MethodDelete, Path: "/v1/user/oauth-grants/{grantId}", Scope: server.ScopeHuman, Idempotent: true, Summary: "Revoke one of the caller's OAuth grants",
			Handler: server.Answer(http.StatusOK, server.Nothing, g.revoke)},
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

func (g grants) list(c *server.Call, in server.Listing) (server.Collection[grantView], error) {
	found, err := server.Ask[*userv1.GrantPage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(),
		Message: &userv1.ListGrants{After: in.After, Limit: in.Limit},
	})
	if err != nil {
		return server.Collection[grantView]{}, err
	}
	items := make([]grantView, len(found.GetGrants()))
	err = service.ForEach(len(items), func(i int) (err error) {
		items[i], err = viewGrant(c, found.GetGrants()[i])
		return err
	})
	return server.Page(c, in, items, nextID(found.GetGrants(), found.GetMore())), err
}

// viewGrant returns a grant as JSON. Only the entity of the grant knows its last use, and the time when its last code or token expires.
// The grant ends then as by a revocation.
func viewGrant(c *server.Call, g *userv1.Grant) (grantView, error) {
	view := grantView{
		ID: g.GetId(), ClientID: g.GetClientId(), ClientName: g.GetClientName(), RedirectHost: g.GetRedirectHost(),
		Scopes: g.GetScopes(), CreatedAt: g.GetCreatedAt(), RevokedAt: g.GetRevokedAt(),
	}
	var err error
	if view.Workspace.Slug, view.Workspace.Name, err = account.GrantedIn(c, g); err != nil {
		return view, err
	}
	used, err := account.DescribeGrant(c, g)
	if err != nil {
		return view, err
	}
	view.LastUsedAt = used.GetLastUsedAt()
	if view.RevokedAt == 0 {
		view.RevokedAt = grant.EndedAt(used, g.GetCreatedAt(), c.Now().UnixMilli())
	}
	return view, nil
}

// revoke revokes a grant of the caller. Errors: not_found.
func (g grants) revoke(c *server.Call, _ server.None) (grantRevoked, error) {
	revoked, err := account.RevokeGrant(c, c.Variable("grantId"))
	if err != nil {
		return grantRevoked{}, err
	}
	return grantRevoked{revoked.GetId(), revoked.GetRevokedAt()}, nil
}
