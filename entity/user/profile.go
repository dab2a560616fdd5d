package user

import (
	"strings"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// DisplayName is what a person is called: first and last name where either is set, else the name as given.
func DisplayName(s *userv1.User) string {
	if name := strings.TrimSpace(s.GetFirstName() + " " + s.GetLastName()); name != "" {
		return name
	}
	return s.GetName()
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
	return []userv1.Event{&userv1.WorkspaceJoined{
		WorkspaceId: c.GetWorkspaceId(), At: call.At(), Email: s.GetEmail(), Name: DisplayName(s),
		Created: c.GetCreated(),
	}}, nil
}

// leaveWorkspace takes the person's grants of the workspace back: who returns later has not consented anew.
func leaveWorkspace(call entity.Call, s *userv1.User, c *userv1.LeaveWorkspace) ([]userv1.Event, error) {
	if _, joined := s.GetWorkspaces()[c.GetWorkspaceId()]; !joined {
		return nil, nil
	}
	events := []userv1.Event{&userv1.WorkspaceLeft{WorkspaceId: c.GetWorkspaceId(), At: call.At()}}
	return append(events, revokeGrantsOf(call, s, c.GetWorkspaceId())...), nil
}

func changeProfile(call entity.Call, s *userv1.User, c *userv1.ChangeProfile) ([]userv1.Event, error) {
	next := copyOf(s)
	if c.FirstName != nil {
		next.FirstName = c.GetFirstName()
	}
	if c.LastName != nil {
		next.LastName = c.GetLastName()
	}
	if err := checkPart("firstName", next.FirstName); err != nil {
		return nil, err
	}
	if err := checkPart("lastName", next.LastName); err != nil {
		return nil, err
	}
	if next.FirstName == s.GetFirstName() && next.LastName == s.GetLastName() {
		return nil, nil
	}
	return []userv1.Event{&userv1.ProfileChanged{
		FirstName: next.FirstName, LastName: next.LastName, At: call.At(),
		Email: s.GetEmail(), Name: DisplayName(next), WorkspaceIds: workspaceIDs(s),
	}}, nil
}

// describe leaves out every workspace but the one that a credential is bound to.
func describe(call entity.Call, s *userv1.User) *userv1.User {
	shown := Shown(s)
	if only := call.Principal.GetWorkspaceId(); only != "" {
		shown.Workspaces = nil
		if at, joined := s.GetWorkspaces()[only]; joined {
			shown.Workspaces = map[string]int64{only: at}
		}
	}
	return shown
}

// Shown is who a person is, without what they hold; its name is the one to display. It is the row of the list "people".
func Shown(s *userv1.User) *userv1.User {
	return &userv1.User{
		Id:            s.GetId(),
		Email:         s.GetEmail(),
		Name:          DisplayName(s),
		CreatedAt:     s.GetCreatedAt(),
		Workspaces:    s.GetWorkspaces(),
		FirstName:     s.GetFirstName(),
		LastName:      s.GetLastName(),
		DisabledAt:    s.GetDisabledAt(),
		InternalAdmin: s.GetInternalAdmin(),
	}
}
