package http

import (
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
)

// adminRoutes is the table of the Unix socket.
func (s *Server) adminRoutes() []route {
	return []route{
		{http.MethodPost, "/admin/users", operator, false, "Create a person with a first API key", answer(http.StatusCreated, body[personRequest], s.createPerson), brief, false},
		{http.MethodPost, "/admin/keys", operator, false, "Issue a further API key for a person", answer(http.StatusCreated, body[personKeyRequest], s.createPersonKey), brief, false},
	}
}

type personRequest struct {
	Email string `json:"email"`
	Name  string `json:"name"`
}

type personKeyRequest struct {
	Email string `json:"email"`
}

type personCreated struct {
	UserID string `json:"userId"`
	Email  string `json:"email"`
	Key    string `json:"key"`
}

// createPerson claims the address; the person follows from that and gets a first key. Where the process ends between
// the two, a further key finishes the work.
func (s *Server) createPerson(c *call, in personRequest) (personCreated, error) {
	address, err := checkEmail(in.Email)
	if err != nil {
		return personCreated{}, err
	}
	userID := s.options.NewID("usr_")
	if _, err := ask[proto.Message](c, entity.Command{
		Kind: entity.KindEmail, Identity: address, Principal: entity.Platform(), ID: s.options.NewID("cmd_"),
		Message: &emailv1.ClaimEmail{UserId: userID, Name: in.Name},
	}); err != nil {
		return personCreated{}, err
	}
	if err := c.settle(entity.KindEmail, address); err != nil {
		return personCreated{}, err
	}
	return c.bootstrap(userID, address)
}

func (s *Server) createPersonKey(c *call, in personKeyRequest) (personCreated, error) {
	address, err := checkEmail(in.Email)
	if err != nil {
		return personCreated{}, err
	}
	found, err := ask[*emailv1.Email](c, entity.Command{
		Kind: entity.KindEmail, Identity: address, Principal: entity.Platform(), Message: &emailv1.ResolveEmail{},
	})
	switch {
	case err != nil:
		return personCreated{}, err
	case found.GetUserId() == "":
		return personCreated{}, errNotFound
	}
	if err := c.settle(entity.KindEmail, address); err != nil { // the person may be in the making
		return personCreated{}, err
	}
	return c.bootstrap(found.GetUserId(), address)
}

func (c *call) bootstrap(userID, address string) (personCreated, error) {
	key, _, err := c.issueKey(entity.Command{Identity: userID, Principal: entity.Platform()}, "bootstrap", 0)
	if err != nil {
		return personCreated{}, err
	}
	return personCreated{userID, address, key}, nil
}

// checkEmail is an address in the one form in which it names a person.
func checkEmail(text string) (string, error) {
	if text == "" {
		return "", invalid("email is required")
	}
	address := strings.ToLower(text)
	if err := email.Check(address); err != nil {
		return "", err
	}
	return address, nil
}
