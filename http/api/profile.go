package api

import (
	"net/http"

	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
)

// profile serves the name of the caller.
type profile struct{}

func (p profile) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/v1/user/profile", Scope: server.ScopeHuman, Summary: "Read the caller's profile",
			Handler: server.Answer(http.StatusOK, server.Nothing, p.read)},
		{Method: http.MethodPatch, Path: "/v1/user/profile", Scope: server.ScopeHuman, Summary: "Change the caller's profile",
			Handler: server.Answer(http.StatusOK, server.Body[profileRequest], p.change)},
	}
}

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

func (p profile) read(c *server.Call, _ server.None) (profileView, error) {
	user, err := account.DescribeCaller(c)
	return viewProfile(user), err
}

// change changes the caller's name. When it returns, the caller's workspaces show the new name.
func (p profile) change(c *server.Call, in profileRequest) (profileView, error) {
	user, err := server.Ask[*userv1.User](c, service.CallerCommand(c, &userv1.ChangeProfile{FirstName: in.FirstName, LastName: in.LastName}))
	if err != nil {
		return profileView{}, err
	}
	return viewProfile(user), service.SettleCaller(c)
}

func viewProfile(u *userv1.User) profileView {
	return profileView{u.GetId(), u.GetEmail(), u.GetFirstName(), u.GetLastName(), u.GetName()}
}
