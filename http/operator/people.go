package operator

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service/account"
)

// people serves the accounts of the installation.
type people struct{ directory Directory }

func (p people) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: adminPeople, Scope: server.ScopeOperator, Summary: "Create a person with a first API key",
			Handler: server.Answer(http.StatusCreated, server.Body[personRequest], p.create)},
		{Method: http.MethodGet, Path: adminPeople, Scope: server.ScopeOperator, Summary: "List the people",
			Handler: server.Answer(http.StatusOK, decodeOwnersPage, p.list)},
		{Method: http.MethodPatch, Path: adminPeople, Scope: server.ScopeOperator, Idempotent: true, Summary: "Disable or enable a person, make one an internal admin, or unlink one from the provider",
			Handler: server.Answer(http.StatusOK, server.Body[personChange], p.change)},
		{Method: http.MethodPost, Path: "/admin/keys", Scope: server.ScopeOperator, Summary: "Issue a further API key for a person",
			Handler: server.Answer(http.StatusCreated, server.Body[personNamed], p.createKey)},
		{Method: http.MethodPost, Path: "/admin/links", Scope: server.ScopeOperator, Summary: "Make a link that sets a person's password",
			Handler: server.Answer(http.StatusCreated, server.Body[linkRequest], p.createLink)},
	}
}

type personRequest struct {
	Email string `json:"email"`
	Name  string `json:"name"`
	// Keyless creates no first key; Link creates a link that sets the password.
	Keyless bool `json:"keyless"`
	Link    bool `json:"link"`
}

type personNamed struct {
	Email string `json:"email"`
}

type personCreated struct {
	UserID       string `json:"userId"`
	Email        string `json:"email"`
	Key          string `json:"key,omitzero"`
	PasswordLink string `json:"passwordLink,omitzero"`
}

type personRecord struct {
	UserID        string `json:"userId"`
	Email         string `json:"email"`
	Name          string `json:"name,omitzero"`
	CreatedAt     int64  `json:"createdAt"`
	Workspaces    int    `json:"workspaces"`
	InternalAdmin bool   `json:"internalAdmin"`
	DisabledAt    int64  `json:"disabledAt,omitzero"`
}

// personChange changes the fields that are present.
type personChange struct {
	Email         string `json:"email"`
	Disabled      *bool  `json:"disabled"`
	InternalAdmin *bool  `json:"internalAdmin"`
	Unlinked      bool   `json:"unlinked"`
}

// create claims the email address, waits until its reaction has created the account, and issues a first key. If the process
// ends before the key is issued, createKey issues one. Errors: email_taken, invalid_request.
func (p people) create(c *server.Call, in personRequest) (personCreated, error) {
	address, err := account.CanonicalEmail(in.Email)
	if err != nil {
		return personCreated{}, err
	}
	person := personCreated{Email: address}
	if person.UserID, err = account.Create(c, address, in.Name); err != nil {
		return personCreated{}, err
	}
	if in.Link {
		if person.PasswordLink, err = offerLink(c, person.UserID); err != nil {
			return personCreated{}, err
		}
	}
	if in.Keyless {
		return person, nil
	}
	return issueFirstKey(c, person)
}

func (p people) createKey(c *server.Call, in personNamed) (personCreated, error) {
	person, err := findPerson(c, in.Email)
	if err != nil {
		return personCreated{}, err
	}
	return issueFirstKey(c, person)
}

// linkRequest asks for a link that sets the password of an account.
type linkRequest struct {
	Email string `json:"email"`
	// UnlessSet creates no link if the account has a password.
	UnlessSet bool `json:"unlessSet"`
}

func (p people) createLink(c *server.Call, in linkRequest) (personCreated, error) {
	person, err := findPerson(c, in.Email)
	if err != nil {
		return personCreated{}, err
	}
	if in.UnlessSet {
		if password, err := account.DescribePassword(c, person.UserID); err != nil || password.GetHash() != "" {
			return person, err
		}
	}
	person.PasswordLink, err = offerLink(c, person.UserID)
	return person, err
}

func issueFirstKey(c *server.Call, person personCreated) (personCreated, error) {
	key, _, err := account.IssueKey(c, entity.Command{Identity: person.UserID, Principal: entity.Platform()}, &userv1.IssueApiKey{Name: "bootstrap"})
	if err != nil {
		return personCreated{}, err
	}
	person.Key = key
	return person, nil
}

// findPerson returns the account that owns an email address, once it has been created completely. Errors: not_found.
func findPerson(c *server.Call, text string) (personCreated, error) {
	address, err := account.CanonicalEmail(text)
	if err != nil {
		return personCreated{}, err
	}
	userID, err := account.LookUpID(c, address)
	switch {
	case err != nil:
		return personCreated{}, err
	case userID == "":
		return personCreated{}, server.ErrNotFound
	}
	return personCreated{UserID: userID, Email: address}, c.Settle(entity.KindEmail, address) // the account may be incomplete
}

func (p people) list(c *server.Call, in server.Listing) (operatorPage[personRecord], error) {
	return readOwners(c, p.directory, user.People, in, func(id string) (personRecord, error) { return describePerson(c, p.directory, id) })
}

// describePerson returns an account's row in the list of accounts. Errors: not_found.
func describePerson(c *server.Call, d Directory, id string) (personRecord, error) {
	page, err := readRows(c, d, id, user.People, server.Listing{Limit: 1})
	switch {
	case err != nil:
		return personRecord{}, err
	case len(page.GetRows()) == 0:
		return personRecord{}, server.ErrNotFound
	}
	u := &userv1.User{}
	err = proto.Unmarshal(page.GetRows()[0], u)
	return personRecord{
		id, u.GetEmail(), u.GetName(), u.GetCreatedAt(), len(u.GetWorkspaces()), u.GetInternalAdmin(), u.GetDisabledAt(),
	}, err
}

// change changes an account. Errors: the errors of account.Change.
func (p people) change(c *server.Call, in personChange) (personRecord, error) {
	person, err := findPerson(c, in.Email)
	if err != nil {
		return personRecord{}, err
	}
	if err := account.Change(c, person.UserID, account.Changes{Disabled: in.Disabled, InternalAdmin: in.InternalAdmin, Unlinked: in.Unlinked}); err != nil {
		return personRecord{}, err
	}
	return describePerson(c, p.directory, person.UserID)
}

// offerLink returns the URL of a new link that sets an account's password.
func offerLink(c *server.Call, userID string) (url string, err error) {
	path, err := account.OfferLink(c, userID)
	if err != nil {
		return "", err
	}
	return c.Link(path), nil
}
