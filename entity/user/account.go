package user

import (
	"maps"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxNameLength is the greatest length of the name of a person or a key, in characters.
	MaxNameLength = entity.MaxNameLength
	// MaxNamePartLength is the greatest length of a first or last name, in characters.
	MaxNamePartLength = 100
	// MaxImpersonation is the longest lifetime of an impersonation.
	MaxImpersonation = time.Hour
	// MaxImpersonations is the greatest number of concurrent impersonations of one user.
	MaxImpersonations = 20
	// MaxReasonLength is the greatest length of the reason of an impersonation, in characters.
	MaxReasonLength = 500
)

var (
	errCredentialID          = entity.Errorf(entity.InvalidRequest, "credentialId must have 1 to %d bytes", entity.MaxIDLength)
	errImpersonator          = entity.Errorf(entity.InvalidRequest, "impersonatorId is empty or the user's own id")
	errReason                = entity.Errorf(entity.InvalidRequest, "reason must have 1 to %d characters, not all blank and no control characters", MaxReasonLength)
	errImpersonationLong     = entity.Errorf(entity.InvalidRequest, "expiresAt must be within %s", MaxImpersonation)
	errTooManyImpersonations = entity.Errorf(entity.LimitReached, "a user can have at most %d impersonations at a time", MaxImpersonations)
)

// DisplayName returns the name to show for a user: the first and last name if either is set, otherwise the name that was
// given when the user was created.
func DisplayName(s *userv1.User) string {
	if name := strings.TrimSpace(s.GetFirstName() + " " + s.GetLastName()); name != "" {
		return name
	}
	return s.GetName()
}

// createUser creates the user. It has no effect if the user exists. Errors: invalid_request.
func createUser(call entity.Call, s *userv1.User, c *userv1.CreateUser) ([]userv1.Event, error) {
	switch {
	case exists(s):
		return nil, nil
	case c.GetEmail() == "":
		return nil, errNoEmail
	}
	if err := entity.CheckName(c.GetName()); err != nil {
		return nil, err
	}
	return []userv1.Event{&userv1.UserCreated{Email: c.GetEmail(), Name: c.GetName(), At: call.At()}}, nil
}

// joinWorkspace records a membership. The event has the name and address of the user for the workspace. Errors:
// invalid_request.
func joinWorkspace(call entity.Call, s *userv1.User, c *userv1.JoinWorkspace) ([]userv1.Event, error) {
	if c.GetWorkspaceId() == "" {
		return nil, errNoWorkspace
	}
	if _, joined := s.GetWorkspaces()[c.GetWorkspaceId()]; joined {
		return nil, nil
	}
	return []userv1.Event{&userv1.WorkspaceJoined{
		WorkspaceId: c.GetWorkspaceId(), At: call.At(), Email: s.GetEmail(), Name: DisplayName(s),
		Created: c.GetCreated(), Disabled: s.GetDisabledAt() != 0,
	}}, nil
}

// leaveWorkspace also revokes the user's grants for the workspace. A user who joins it again has to consent again.
func leaveWorkspace(call entity.Call, s *userv1.User, c *userv1.LeaveWorkspace) ([]userv1.Event, error) {
	if _, joined := s.GetWorkspaces()[c.GetWorkspaceId()]; !joined {
		return nil, nil
	}
	events := []userv1.Event{&userv1.WorkspaceLeft{WorkspaceId: c.GetWorkspaceId(), At: call.At()}}
	return append(events, revokeGrantsFor(call, s, c.GetWorkspaceId())...), nil
}

// changeProfile changes the names that are set in the command. Errors: invalid_request.
func changeProfile(call entity.Call, s *userv1.User, c *userv1.ChangeProfile) ([]userv1.Event, error) {
	next := entity.ShallowCopy(s)
	if c.FirstName != nil {
		next.FirstName = c.GetFirstName()
	}
	if c.LastName != nil {
		next.LastName = c.GetLastName()
	}
	if err := entity.CheckText("firstName", next.FirstName, 0, MaxNamePartLength); err != nil {
		return nil, err
	}
	if err := entity.CheckText("lastName", next.LastName, 0, MaxNamePartLength); err != nil {
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

// describe returns the account of the user, with the workspaces that the credential reaches. The platform also sees which workspaces the user
// pays for.
func describe(call entity.Call, s *userv1.User) *userv1.User {
	shown := Profile(s)
	shown.Workspaces = maps.Clone(shown.GetWorkspaces())
	maps.DeleteFunc(shown.Workspaces, func(id string, _ int64) bool { return !entity.Reaches(call.Principal, id) })
	if entity.IsPlatform(call.Principal) {
		shown.CreatedWorkspaces = s.GetCreatedWorkspaces()
	}
	return shown
}

// Profile returns the fields of a user that describe the person and the workspaces, without credentials, grants and
// machines. Its Name is the display name. It is the row of the list People.
func Profile(s *userv1.User) *userv1.User {
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

// reservationTime is the time after which a reserved workspace no longer counts if its creation has not been reported. A
// creation takes far less.
const reservationTime = 10 * time.Minute

// reserveWorkspace decides whether the user may create another workspace. The API sends this command before each
// creation, and the entity decides commands one at a time, so concurrent creations cannot exceed the limit. Errors:
// limit_reached.
func reserveWorkspace(call entity.Call, s *userv1.User, c *userv1.ReserveWorkspace) ([]userv1.Event, error) {
	if c.GetWorkspaceId() == "" {
		return nil, errNoWorkspace
	}
	counted := countedWorkspaces(s, call.At())
	if _, reserved := counted[c.GetWorkspaceId()]; reserved {
		return nil, nil
	}
	if limit := int(c.GetLimit()); limit > 0 && len(counted) >= limit {
		return nil, entity.Errorf(entity.LimitReached,
			"a person can have created at most %d workspaces; delete one that is no longer needed", limit)
	}
	return []userv1.Event{&userv1.WorkspaceReserved{
		WorkspaceId: c.GetWorkspaceId(), At: call.At(), ExpiresAt: call.At() + reservationTime.Milliseconds(),
	}}, nil
}

// forgetWorkspace removes a workspace from the workspaces that count towards the limit.
func forgetWorkspace(call entity.Call, s *userv1.User, c *userv1.ForgetWorkspace) ([]userv1.Event, error) {
	if _, known := s.GetCreatedWorkspaces()[c.GetWorkspaceId()]; !known {
		return nil, nil
	}
	return []userv1.Event{&userv1.WorkspaceForgotten{WorkspaceId: c.GetWorkspaceId(), At: call.At()}}, nil
}

// countedWorkspaces returns the workspaces that count towards the limit at a time: the workspaces that the user created,
// and unexpired reservations.
func countedWorkspaces(s *userv1.User, at int64) map[string]int64 {
	counted := maps.Clone(s.GetCreatedWorkspaces())
	maps.DeleteFunc(counted, func(_ string, expiresAt int64) bool {
		return expiresAt != 0 && entity.HasPassed(expiresAt-reservationTime.Milliseconds(), at, reservationTime)
	})
	return counted
}

func disable(call entity.Call, s *userv1.User) ([]userv1.Event, error) {
	if s.GetDisabledAt() != 0 {
		return nil, nil
	}
	return []userv1.Event{&userv1.UserDisabled{At: call.At(), WorkspaceIds: workspaceIDs(s)}}, nil
}

func enable(call entity.Call, s *userv1.User) ([]userv1.Event, error) {
	if s.GetDisabledAt() == 0 {
		return nil, nil
	}
	return []userv1.Event{&userv1.UserEnabled{At: call.At(), WorkspaceIds: workspaceIDs(s)}}, nil
}

func setInternalAdmin(call entity.Call, s *userv1.User, c *userv1.SetInternalAdmin) ([]userv1.Event, error) {
	if c.GetInternalAdmin() == s.GetInternalAdmin() {
		return nil, nil
	}
	return []userv1.Event{&userv1.InternalAdminSet{InternalAdmin: c.GetInternalAdmin(), At: call.At()}}, nil
}

// startImpersonation registers a credential of an operator who acts as the user. Errors: invalid_request, limit_reached.
func startImpersonation(call entity.Call, s *userv1.User, c *userv1.StartImpersonation) ([]userv1.Event, error) {
	if _, started := s.GetImpersonations()[c.GetCredentialId()]; started {
		return nil, nil
	}
	if err := checkImpersonation(call, c); err != nil {
		return nil, err
	}
	if len(activeImpersonations(s, call.At())) >= MaxImpersonations {
		return nil, errTooManyImpersonations
	}
	return []userv1.Event{&userv1.ImpersonationStarted{
		CredentialId: c.GetCredentialId(), SecretSha256: c.GetSecretSha256(), ImpersonatorId: c.GetImpersonatorId(),
		UserId: call.Identity, At: call.At(), ExpiresAt: c.GetExpiresAt(), Reason: c.GetReason(),
		WorkspaceIds: workspaceIDs(s),
	}}, nil
}

func checkImpersonation(call entity.Call, c *userv1.StartImpersonation) error {
	switch {
	case !entity.IsID(c.GetCredentialId()):
		return errCredentialID
	case !entity.IsSHA256(c.GetSecretSha256()):
		return errSecret
	case c.GetImpersonatorId() == "", c.GetImpersonatorId() == call.Identity:
		return errImpersonator
	case c.GetExpiresAt() <= call.At():
		return errExpiryPast
	case c.GetExpiresAt() > call.At()+MaxImpersonation.Milliseconds():
		return errImpersonationLong
	case !isReason(c.GetReason()):
		return errReason
	}
	return nil
}

func isReason(text string) bool {
	return strings.TrimSpace(text) != "" && entity.CheckText("reason", text, 1, MaxReasonLength) == nil
}

// activeImpersonations returns the impersonations that have not expired at a time.
func activeImpersonations(s *userv1.User, at int64) map[string]int64 {
	active := maps.Clone(s.GetImpersonations())
	maps.DeleteFunc(active, func(_ string, expiresAt int64) bool { return expiresAt <= at })
	return active
}
