package http

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Mail sends messages to people.
type Mail interface {
	// Send hands a message over, or fails; it does not wait longer than ctx, and retries nothing.
	Send(ctx context.Context, to, subject, text string) error
}

const (
	// linkTime is how long a one-time link is good.
	linkTime = 72 * time.Hour
	// mailTime bounds the hand-over of a message.
	mailTime = 10 * time.Second
)

var errNotMailed = &entity.Error{
	Code: entity.Unavailable, Message: "the invitation stands, but mail to its address was not taken; invite once more to send it again",
	RetryAfter: mailTime,
}

// deliverInvitation sends an invitation to whom it is for and returns "". Without mail it returns the link for the
// inviter to hand over, and operators find it in the log too. Where there is mail the link is proof of the address, and
// nobody else gets it, however mail fails. Errors: unavailable.
func (c *call) deliverInvitation(w *workspacev1.Workspace, i *workspacev1.Invitation, secret string) (link string, err error) {
	link = c.server.link(invitationPath + ulidOf(w.GetId()) + "." + ulidOf(i.GetId()) + "." + secret)
	log := c.server.log.With("request", c.w.id, "workspace", w.GetId(), "invitation", i.GetId())
	if c.server.options.Mail == nil {
		log.Warn("without mail, an invitation's link is to be handed over", "link", link)
		return link, nil
	}
	text := fmt.Sprintf("%s invites you to work in %s.\n\nAccept here, before %s:\n\n%s\n\nIf you do not know what this is about, leave it be: nothing happens.\n",
		inviterName(i.GetInviter()), w.GetName(), moment(i.GetExpiresAt()), link)
	sending := context.WithoutCancel(c.ctx) // also where who asked for it has gone
	if !c.server.send(sending, log, i.GetEmail(), "Invitation to "+w.GetName(), text) {
		return "", errNotMailed
	}
	return "", nil
}

// moment is a time as messages tell it.
func moment(at int64) string { return time.UnixMilli(at).UTC().Format("2 January 2006, 15:04 UTC") }

func inviterName(p *workspacev1.Person) string {
	switch {
	case p.GetName() != "" && p.GetEmail() != "" && p.GetName() != p.GetEmail():
		return p.GetName() + " (" + p.GetEmail() + ")"
	case p.GetName() != "":
		return p.GetName()
	case p.GetEmail() != "":
		return p.GetEmail()
	}
	return "Somebody"
}

// send tells whether a message was handed over. What failed is logged, without the message.
func (s *Server) send(ctx context.Context, log *slog.Logger, to, subject, text string) bool {
	ctx, cancel := context.WithTimeout(ctx, mailTime)
	defer cancel()
	if err := s.options.Mail.Send(ctx, to, subject, text); err != nil {
		log.Error("mail was not sent", "error", err)
		return false
	}
	return true
}

// offerLink makes a link that sets a person's password, once, and replaces the one before.
func (c *call) offerLink(userID string) (url string, err error) {
	path, err := c.passwordPath(userID)
	if err != nil {
		return "", err
	}
	return c.server.link(path), nil
}

// passwordPath is offerLink for a browser that is here.
func (c *call) passwordPath(userID string) (string, error) {
	secret, _ := newSecret()
	return c.offerSecret(userID, secret, c.server.now().Add(linkTime).UnixMilli())
}

// offerSecret is passwordPath with a secret that is given. The one that is open already stays as it is.
func (c *call) offerSecret(userID, secret string, expiresAt int64) (string, error) {
	_, err := ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: c.server.options.NewID("cmd_"),
		Message: &userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{SecretSha256: hashOf(secret), ExpiresAt: expiresAt}},
	})
	return "/set-password?token=" + ulidOf(userID) + "." + secret, err
}

// link is where clients find a path of this server.
func (s *Server) link(path string) string {
	return strings.TrimSuffix(s.options.PublicURL.String(), "/") + path
}

// ulidOf is an id without its kind.
func ulidOf(id string) string { return id[max(0, len(id)-ulidLength):] }
