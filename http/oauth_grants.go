package http

import (
	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

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

func (s *Server) listGrants(c *call, in listing) (collection[grantView], error) {
	found, err := ask[*userv1.GrantPage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.caller.principal.GetUserId(),
		Message: &userv1.ListGrants{After: in.after, Limit: in.limit},
	})
	if err != nil {
		return collection[grantView]{}, err
	}
	items := make([]grantView, len(found.GetGrants()))
	err = each(len(items), func(i int) (err error) {
		items[i], err = c.viewGrant(found.GetGrants()[i])
		return err
	})
	return page(c, in, items, idAfter(found.GetGrants(), found.GetMore())), err
}

// viewGrant asks the grant itself for its last use.
func (c *call) viewGrant(g *userv1.Grant) (grantView, error) {
	view := grantView{
		ID: g.GetId(), ClientID: g.GetClientId(), ClientName: g.GetClientName(), RedirectHost: g.GetRedirectHost(),
		Scopes: g.GetScopes(), CreatedAt: g.GetCreatedAt(), RevokedAt: g.GetRevokedAt(),
	}
	var err error
	if view.Workspace, err = c.grantedIn(g); err != nil {
		return view, err
	}
	used, err := ask[*grantv1.Grant](c, entity.Command{
		Kind: entity.KindGrant, Identity: g.GetId(), Principal: entity.Platform(), Message: &grantv1.DescribeGrant{},
	})
	if hidden(err) { // allowed a moment ago
		return view, nil
	}
	view.LastUsedAt = used.GetLastUsedAt()
	return view, err
}

// grantedIn is the workspace as it is called now where the caller may see it, else as it was when the grant was allowed.
func (c *call) grantedIn(g *userv1.Grant) (grantedInView, error) {
	seen, err := ask[*workspacev1.Description](c, entity.Command{
		Kind: entity.KindWorkspace, Identity: g.GetWorkspaceId(), Message: &workspacev1.DescribeWorkspace{},
	})
	if hidden(err) {
		return grantedInView{g.GetWorkspaceSlug(), g.GetWorkspaceName()}, nil
	}
	return grantedInView{seen.GetWorkspace().GetSlug(), seen.GetWorkspace().GetName()}, err
}

// revokeGrant answers when none of the family's tokens opens anything here any more, streams included.
func (s *Server) revokeGrant(c *call, _ none) (grantRevoked, error) {
	grant, err := ask[*userv1.Grant](c, c.changeOwn(&userv1.RevokeGrant{GrantId: c.variable("grantId")}))
	if err != nil {
		return grantRevoked{}, err
	}
	if err := c.settleOwn(); err != nil {
		return grantRevoked{}, err
	}
	s.forgetCredential(grant.GetId())
	return grantRevoked{grant.GetId(), grant.GetRevokedAt()}, nil
}

// forgetCredential makes the end of a credential or grant felt here at once.
func (s *Server) forgetCredential(id string) {
	s.authenticator.known.forget(id)
	s.watch.end(id)
}
