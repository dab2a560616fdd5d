package http

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/user"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

type personRequest struct {
	Email string `json:"email"`
	Name  string `json:"name"`
	// Keyless people get no first key; Link makes a link that sets their password.
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

// personChange leaves as it is what is left out.
type personChange struct {
	Email         string `json:"email"`
	Disabled      *bool  `json:"disabled"`
	InternalAdmin *bool  `json:"internalAdmin"`
	// Unlinked has the provider's next subject linked anew, and ends the person's browser sessions.
	Unlinked bool `json:"unlinked"`
}

// createPerson claims the address; the person follows from that and gets a first key. Where the process ends between
// the two, a further key finishes the work.
func (s *Server) createPerson(c *call, in personRequest) (personCreated, error) {
	address, err := checkEmail(in.Email)
	if err != nil {
		return personCreated{}, err
	}
	person := personCreated{UserID: s.options.NewID("usr_"), Email: address}
	claim := c.asPlatform(entity.KindEmail, address, &emailv1.ClaimEmail{UserId: person.UserID, Name: in.Name})
	if _, err := ask[proto.Message](c, claim); err != nil {
		return personCreated{}, err
	}
	if err := c.settle(entity.KindEmail, address); err != nil {
		return personCreated{}, err
	}
	if in.Link {
		if person.PasswordLink, err = c.offerLink(person.UserID); err != nil {
			return personCreated{}, err
		}
	}
	if in.Keyless {
		return person, nil
	}
	return c.bootstrap(person)
}

func (s *Server) createPersonKey(c *call, in personNamed) (personCreated, error) {
	person, err := c.findPerson(in.Email)
	if err != nil {
		return personCreated{}, err
	}
	return c.bootstrap(person)
}

// linkRequest asks for a link that sets a person's password.
type linkRequest struct {
	Email string `json:"email"`
	// UnlessSet asks for no link if the person has a password.
	UnlessSet bool `json:"unlessSet"`
}

func (s *Server) createLink(c *call, in linkRequest) (personCreated, error) {
	person, err := c.findPerson(in.Email)
	if err != nil {
		return personCreated{}, err
	}
	if in.UnlessSet {
		if password, err := c.passwordOf(person.UserID); err != nil || password.GetHash() != "" {
			return person, err
		}
	}
	person.PasswordLink, err = c.offerLink(person.UserID)
	return person, err
}

func (c *call) bootstrap(person personCreated) (personCreated, error) {
	key, _, err := c.issueKey(entity.Command{Identity: person.UserID, Principal: entity.Platform()}, "bootstrap", 0)
	if err != nil {
		return personCreated{}, err
	}
	person.Key = key
	return person, nil
}

// findPerson is whose an address is.
func (c *call) findPerson(text string) (personCreated, error) {
	address, err := checkEmail(text)
	if err != nil {
		return personCreated{}, err
	}
	userID, err := c.personAt(address)
	switch {
	case err != nil:
		return personCreated{}, err
	case userID == "":
		return personCreated{}, errNotFound
	}
	return personCreated{UserID: userID, Email: address}, c.settle(entity.KindEmail, address) // they may be in the making
}

func (s *Server) listPeople(c *call, in listing) (roster[personRecord], error) {
	return readOwners(c, user.People, in, c.describePerson)
}

// describePerson reads the person's row of the list of people.
func (c *call) describePerson(id string) (personRecord, error) {
	page, err := c.rows(id, user.People, listing{limit: 1})
	switch {
	case err != nil:
		return personRecord{}, err
	case len(page.GetRows()) == 0:
		return personRecord{}, errNotFound
	}
	u := &userv1.User{}
	err = proto.Unmarshal(page.GetRows()[0], u)
	return personRecord{
		id, u.GetEmail(), u.GetName(), u.GetCreatedAt(), len(u.GetWorkspaces()), u.GetInternalAdmin(), u.GetDisabledAt(),
	}, err
}

// changePerson is in force here when it is answered, and elsewhere within a second.
func (s *Server) changePerson(c *call, in personChange) (personRecord, error) {
	person, err := c.findPerson(in.Email)
	if err != nil {
		return personRecord{}, err
	}
	var changes []proto.Message
	switch {
	case in.Disabled == nil:
	case *in.Disabled:
		changes = append(changes, &userv1.Disable{})
	default:
		changes = append(changes, &userv1.Enable{})
	}
	if in.InternalAdmin != nil {
		changes = append(changes, &userv1.SetInternalAdmin{InternalAdmin: *in.InternalAdmin})
	}
	if in.Unlinked {
		changes = append(changes, &userv1.UnlinkIdentities{})
	}
	for _, m := range changes {
		if _, err := ask[proto.Message](c, c.asPlatform(entity.KindUser, person.UserID, m)); err != nil {
			return personRecord{}, err
		}
	}
	err = c.settle(entity.KindUser, person.UserID) // sessions that end are credentials of their own
	s.forgetPerson(person.UserID, in.Unlinked || in.Disabled != nil && *in.Disabled)
	if err != nil {
		return personRecord{}, err
	}
	return c.describePerson(person.UserID)
}

// forgetPerson has each credential of a person asked for anew, and each with which they act as somebody; where shut is
// set, their streams end.
func (s *Server) forgetPerson(userID string, shut bool) {
	known := s.authenticator.known
	known.forget(userID)  // no answer that is on its way is kept
	known.forgetUnknown() // keys of who was shut out are among them
	known.entries.Range(func(id, found any) bool {
		of := found.(*remembered[*credential]).value.principal
		if of.GetUserId() == userID || of.GetImpersonatorId() == userID {
			known.forget(id.(string))
			if shut {
				s.watch.end(id.(string))
			}
		}
		return true
	})
}

// checkEmail is an address in the one form in which it names a person.
func checkEmail(text string) (string, error) {
	if text == "" {
		return "", invalid("email is required")
	}
	return email.Canonical(text)
}
