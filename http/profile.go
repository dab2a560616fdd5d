package http

import (
	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

type profileRequest struct {
	FirstName *string `json:"firstName"`
	LastName  *string `json:"lastName"`
}

type profileView struct {
	ID        string `json:"id"`
	Email     string `json:"email"`
	FirstName string `json:"firstName,omitzero"`
	LastName  string `json:"lastName,omitzero"`
	Name      string `json:"name,omitzero"`
}

func (s *Server) readProfile(c *call, _ none) (profileView, error) {
	user, err := c.describeCaller()
	return viewProfile(user), err
}

// changeProfile answers when the caller's workspaces know the new name, too.
func (s *Server) changeProfile(c *call, in profileRequest) (profileView, error) {
	user, err := ask[*userv1.User](c, c.changeOwn(&userv1.ChangeProfile{FirstName: in.FirstName, LastName: in.LastName}))
	if err != nil {
		return profileView{}, err
	}
	return viewProfile(user), c.settleOwn()
}

func viewProfile(u *userv1.User) profileView {
	return profileView{u.GetId(), u.GetEmail(), u.GetFirstName(), u.GetLastName(), u.GetName()}
}

// changeOwn is a command that changes what the caller is or holds.
func (c *call) changeOwn(m userv1.Command) entity.Command {
	return entity.Command{
		Kind: entity.KindUser, Identity: c.caller.principal.GetUserId(), ID: c.server.options.NewID("cmd_"), Message: m,
	}
}

// settleOwn waits for what follows from that.
func (c *call) settleOwn() error { return c.settle(entity.KindUser, c.caller.principal.GetUserId()) }
