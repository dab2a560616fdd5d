package http

import (
	"context"
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

// linkToInvitation logs and returns an invitation's link for the inviter to hand over. It is for servers without mail:
// where there is mail, the link proves the address, and nobody but the address gets it.
func (c *call) linkToInvitation(w *workspacev1.Workspace, i *workspacev1.Invitation, secret string) string {
	link := c.server.invitationLink(w.GetId(), i.GetId(), secret)
	c.server.log.Warn("without mail, an invitation's link is to be handed over", "request", c.w.id, "workspace", w.GetId(),
		"invitation", i.GetId(), "link", link)
	return link
}

func (s *Server) invitationLink(workspaceID, invitationID, secret string) string {
	return s.link(invitationPath + ulidOf(workspaceID) + "." + ulidOf(invitationID) + "." + secret)
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
	return c.offerSecret(userID, secret, c.server.now().Add(linkTime).UnixMilli(), "")
}

// offerSecret is passwordPath with a secret that is given. The one that is open already stays as it is. With a mailID, the
// link is to be mailed; see MailLink.
func (c *call) offerSecret(userID, secret string, expiresAt int64, mailID string) (string, error) {
	_, err := ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), ID: c.server.options.NewID("cmd_"),
		Message: &userv1.OfferOneTimeLink{Link: &userv1.OneTimeLink{
			SecretSha256: hashOf(secret), ExpiresAt: expiresAt, MailId: mailID,
		}},
	})
	return passwordLink(userID, secret), err
}

func passwordLink(userID, secret string) string {
	return "/set-password?token=" + ulidOf(userID) + "." + secret
}

// link is where clients find a path of this server.
func (s *Server) link(path string) string {
	return strings.TrimSuffix(s.options.PublicURL.String(), "/") + path
}

// ulidOf is an id without its kind.
func ulidOf(id string) string { return id[max(0, len(id)-ulidLength):] }
