package user

import (
	"crypto/sha256"
	"maps"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// Limits of impersonations.
const (
	MaxImpersonation = time.Hour
	// MaxImpersonations is how many of one person may run at a time.
	MaxImpersonations = 20
	// MaxReasonLength is in characters.
	MaxReasonLength = 500
)

var (
	errCredentialID     = entity.Errorf(entity.InvalidRequest, "credentialId must have 1 to %d bytes", maxIDLength)
	errSelf             = entity.Errorf(entity.InvalidRequest, "impersonatorId is nobody's or the person's own")
	errReason           = entity.Errorf(entity.InvalidRequest, "reason must have 1 to %d characters", MaxReasonLength)
	errLongImpersonated = entity.Errorf(entity.InvalidRequest, "expiresAt must be within %s", MaxImpersonation)
	errImpersonations   = entity.Errorf(entity.LimitReached, "at most %d impersonations of a person can run at a time", MaxImpersonations)
)

func disable(call entity.Call, s *userv1.User) ([]userv1.Event, error) {
	if s.GetDisabledAt() != 0 {
		return nil, nil
	}
	return []userv1.Event{&userv1.UserDisabled{At: call.At()}}, nil
}

func enable(call entity.Call, s *userv1.User) ([]userv1.Event, error) {
	if s.GetDisabledAt() == 0 {
		return nil, nil
	}
	return []userv1.Event{&userv1.UserEnabled{At: call.At()}}, nil
}

func setInternalAdmin(call entity.Call, s *userv1.User, c *userv1.SetInternalAdmin) ([]userv1.Event, error) {
	if c.GetInternalAdmin() == s.GetInternalAdmin() {
		return nil, nil
	}
	return []userv1.Event{&userv1.InternalAdminSet{InternalAdmin: c.GetInternalAdmin(), At: call.At()}}, nil
}

func startImpersonation(call entity.Call, s *userv1.User, c *userv1.StartImpersonation) ([]userv1.Event, error) {
	if _, started := s.GetImpersonations()[c.GetCredentialId()]; started {
		return nil, nil
	}
	if err := checkImpersonation(call, c); err != nil {
		return nil, err
	}
	if len(running(s, call.At())) >= MaxImpersonations {
		return nil, errImpersonations
	}
	return []userv1.Event{&userv1.ImpersonationStarted{
		CredentialId: c.GetCredentialId(), SecretSha256: c.GetSecretSha256(), ImpersonatorId: c.GetImpersonatorId(),
		UserId: call.Identity, At: call.At(), ExpiresAt: c.GetExpiresAt(), Reason: c.GetReason(),
		WorkspaceIds: workspaceIDs(s),
	}}, nil
}

func checkImpersonation(call entity.Call, c *userv1.StartImpersonation) error {
	switch {
	case !isID(c.GetCredentialId()):
		return errCredentialID
	case len(c.GetSecretSha256()) != sha256.Size:
		return errSecret
	case c.GetImpersonatorId() == "", c.GetImpersonatorId() == call.Identity:
		return errSelf
	case c.GetExpiresAt() <= call.At():
		return errExpiryPast
	case c.GetExpiresAt() > call.At()+MaxImpersonation.Milliseconds():
		return errLongImpersonated
	case !isReason(c.GetReason()):
		return errReason
	}
	return nil
}

func isReason(text string) bool {
	return utf8.ValidString(text) && strings.TrimSpace(text) != "" && utf8.RuneCountInString(text) <= MaxReasonLength &&
		!strings.ContainsFunc(text, unicode.IsControl)
}

// running are the impersonations that have not expired.
func running(s *userv1.User, at int64) map[string]int64 {
	left := maps.Clone(s.GetImpersonations())
	maps.DeleteFunc(left, func(_ string, expires int64) bool { return expires <= at })
	return left
}
