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

// revokeEnded revokes the grants of a person that have ended because their code or their last token expired. The list of the person does
// not know that, and counts them until then. Errors: the errors of the entities.
func (p *Provider) revokeEnded(ctx context.Context, person *wirev1.Principal) error {
	for after := ""; ; {
		page, err := entity.Ask[*userv1.GrantPage](ctx, p.Asker, entity.Command{
			Kind: entity.KindUser, Identity: person.GetUserId(), Principal: person,
			Message: &userv1.ListGrants{After: after, Limit: user.MaxPage},
		})
		if err != nil {
			return err
		}
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
	found, err := entity.AskAsPlatform[*grantv1.Grant](ctx, p.Asker, entity.KindGrant, g.GetId(), &grantv1.DescribeGrant{})
	if err != nil && !entity.HasCode(err, entity.NotFound) { // the grant may not have been opened; found is nil then
		return err
	}
	if grant.EndedAt(found, g.GetCreatedAt(), p.Now().UnixMilli()) == 0 {
		return nil
	}
	_, err = p.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: p.NewID("cmd_"),
		Message: &userv1.RevokeGrant{GrantId: g.GetId()},
	})
	return err
}
