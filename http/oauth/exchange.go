package oauth

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
)

// exchange is what one request learned of a grant and wants of it. It travels in the request's context, as fosite passes
// nothing else from call to call.
type exchange struct {
	requestID string
	// grant is the one that the presented token names, once it has been asked for.
	grant *grantv1.Grant
	// opening is the grant that a code is made for.
	opening *grantv1.Grant
	// What is exchanged, and for what.
	code, refresh      []byte
	newAccess, newNext *grantv1.Token
	// replay is the command that tells the grant that a spent code or token came back.
	replay proto.Message
}

type exchangeKey struct{}

func begin(ctx context.Context, requestID string) (context.Context, *exchange) {
	x := &exchange{requestID: requestID}
	return context.WithValue(ctx, exchangeKey{}, x), x
}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	if x == nil {
		panic("oauth: no exchange in the context") // every entry begins one
	}
	return x
}

// command is what the collected calls amount to; nil: nothing.
func (x *exchange) command() proto.Message {
	switch {
	case x.code != nil:
		return &grantv1.RedeemCode{CodeSha256: x.code, Access: x.newAccess, Refresh: x.newNext}
	case x.refresh != nil:
		return &grantv1.Refresh{RefreshSha256: x.refresh, Access: x.newAccess, Refresh: x.newNext}
	}
	return nil
}

// ask sends a command to an entity as the platform.
func (p *Provider) ask(ctx context.Context, kind, identity string, m proto.Message) (proto.Message, error) {
	reply, err := p.Asker.Ask(ctx, entity.Command{
		Kind: kind, Identity: identity, Principal: entity.Platform(), RequestID: exchangeOf(ctx).requestID, Message: m,
	})
	if err != nil {
		return nil, inside{err}
	}
	return reply, nil
}

// ended makes the end of a family take effect, and waits until the person's list and the audit log know of it.
func (p *Provider) ended(ctx context.Context, grantID, userID string) error {
	p.Ended(grantID)
	if err := p.Asker.Settle(ctx, entity.KindGrant, grantID); err != nil {
		return err
	}
	return p.Asker.Settle(ctx, entity.KindUser, userID)
}
