// Package user holds the rules of a person: who they are, the workspaces they belong to, the API keys they issued.
//
//	(none) ──CreateUser──► a person ──JoinWorkspace──► belongs to one workspace more
//
//	API key: (none) ──IssueApiKey──► usable ──RevokeApiKey──► revoked
//	                                   └─────expiresAt──────► expired
//
// The platform creates people and tells them what they joined. Keys are the person's own business: a credential that
// acts as the person (entity.Human) issues, lists and revokes them; one that merely acts for the person reads who they
// are. To everybody else there is no such person. Secrets come in as hashes and never go out again.
package user

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Zero is the state before the first event.
func Zero(identity string) *userv1.User {
	return &userv1.User{Id: identity}
}

// Decide turns a command into events. No events and no error: already so, or a query.
// Errors: not_found, forbidden, invalid_request, limit_reached.
func Decide(call entity.Call, s *userv1.User, c userv1.Command) ([]userv1.Event, error) {
	if err := authorize(call, c); err != nil {
		return nil, err
	}
	if _, creates := c.(*userv1.CreateUser); !creates && !exists(s) {
		return nil, errNotFound
	}
	switch c := c.(type) {
	case *userv1.CreateUser:
		return createUser(call, s, c)
	case *userv1.JoinWorkspace:
		return joinWorkspace(call, s, c)
	case *userv1.IssueApiKey:
		return issueKey(call, s, c)
	case *userv1.RevokeApiKey:
		return revokeKey(call, s, c)
	case *userv1.ListApiKeys:
		return nil, checkPage(c)
	case *userv1.DescribeUser:
	}
	return nil, nil
}

// Evolve is the state after an event. It shares with s what the event did not change.
func Evolve(s *userv1.User, e userv1.Event) *userv1.User {
	next := copyOf(s)
	switch e := e.(type) {
	case *userv1.UserCreated:
		next.Email, next.Name, next.CreatedAt = e.GetEmail(), e.GetName(), e.GetAt()
	case *userv1.WorkspaceJoined:
		next.Workspaces = with(s.GetWorkspaces(), e.GetWorkspaceId(), e.GetAt())
	case *userv1.ApiKeyIssued:
		next.ApiKeys = with(s.GetApiKeys(), e.GetKey().GetId(), e.GetKey())
	case *userv1.ApiKeyRevoked:
		revoked := copyOfKey(s.GetApiKeys()[e.GetKeyId()])
		revoked.Id, revoked.RevokedAt = e.GetKeyId(), e.GetAt()
		next.ApiKeys = with(s.GetApiKeys(), e.GetKeyId(), revoked)
	}
	return next
}

// Reply is what the asker gets; s is the state after the events.
func Reply(call entity.Call, s *userv1.User, c userv1.Command, _ []userv1.Event) proto.Message {
	switch c := c.(type) {
	case *userv1.IssueApiKey:
		return shownKey(s.GetApiKeys()[c.GetKeyId()])
	case *userv1.RevokeApiKey:
		return shownKey(s.GetApiKeys()[c.GetKeyId()])
	case *userv1.DescribeUser:
		return describe(call, s)
	case *userv1.ListApiKeys:
		return pageOfKeys(s, c)
	case *userv1.CreateUser, *userv1.JoinWorkspace:
	}
	return &wirev1.Done{}
}

func createUser(call entity.Call, s *userv1.User, c *userv1.CreateUser) ([]userv1.Event, error) {
	switch {
	case exists(s):
		return nil, nil
	case c.GetEmail() == "":
		return nil, errNoEmail
	}
	if err := CheckName(c.GetName()); err != nil {
		return nil, err
	}
	return []userv1.Event{&userv1.UserCreated{Email: c.GetEmail(), Name: c.GetName(), At: call.At()}}, nil
}

func joinWorkspace(call entity.Call, s *userv1.User, c *userv1.JoinWorkspace) ([]userv1.Event, error) {
	if c.GetWorkspaceId() == "" {
		return nil, errNoWorkspace
	}
	if _, joined := s.GetWorkspaces()[c.GetWorkspaceId()]; joined {
		return nil, nil
	}
	return []userv1.Event{&userv1.WorkspaceJoined{WorkspaceId: c.GetWorkspaceId(), At: call.At()}}, nil
}

// describe leaves the keys out, which only the person lists, and every workspace but the one a credential is bound to.
func describe(call entity.Call, s *userv1.User) *userv1.User {
	shown := copyOf(s)
	shown.ApiKeys = nil
	if only := call.Principal.GetWorkspaceId(); only != "" {
		shown.Workspaces = nil
		if at, joined := s.GetWorkspaces()[only]; joined {
			shown.Workspaces = map[string]int64{only: at}
		}
	}
	return shown
}

func exists(s *userv1.User) bool { return s.GetEmail() != "" }

func copyOf(s *userv1.User) *userv1.User {
	return &userv1.User{
		Id:         s.GetId(),
		Email:      s.GetEmail(),
		Name:       s.GetName(),
		CreatedAt:  s.GetCreatedAt(),
		Workspaces: s.GetWorkspaces(),
		ApiKeys:    s.GetApiKeys(),
	}
}
