package oauth

import (
	"context"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/grant"
	"github.com/atelier-run/atelier/entity/user"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// revokeEnded revokes the grants of a person that have ended because their code or their last token expired. The list of the person
// does not know that, and counts them until then. Errors: those of the entities.
func (p *Provider) revokeEnded(ctx context.Context, person *wirev1.Principal) error {
	for after := ""; ; {
		reply, err := p.Asker.Ask(ctx, entity.Command{
			Kind: entity.KindUser, Identity: person.GetUserId(), Principal: person,
			Message: &userv1.ListGrants{After: after, Limit: user.MaxPage},
		})
		if err != nil {
			return err
		}
		page := reply.(*userv1.GrantPage)
		for _, g := range page.GetGrants() {
			after = g.GetId()
			if g.GetRevokedAt() == 0 {
				if err := p.revokeIfEnded(ctx, person.GetUserId(), g); err != nil {
					return err
				}
			}
		}
		if !page.GetMore() {
			return nil
		}
	}
}

func (p *Provider) revokeIfEnded(ctx context.Context, userID string, g *userv1.Grant) error {
	reply, err := p.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindGrant, Identity: g.GetId(), Principal: entity.Platform(), Message: &grantv1.DescribeGrant{},
	})
	if err != nil && !entity.HasCode(err, entity.NotFound) {
		return err
	}
	found, _ := reply.(*grantv1.Grant) // nil if the grant was not opened
	if grant.EndedAt(found, g.GetCreatedAt(), p.Now().UnixMilli()) == 0 {
		return nil
	}
	_, err = p.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: p.NewID("cmd_"),
		Message: &userv1.RevokeGrant{GrantId: g.GetId()},
	})
	return err
}
