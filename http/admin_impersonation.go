package http

import (
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

type impersonationRequest struct {
	// Email is whom to act as, Admin the address of who will.
	Email  string `json:"email"`
	Admin  string `json:"admin"`
	Reason string `json:"reason"`
	// Seconds is how long; left out: 15 minutes.
	Seconds int64 `json:"seconds"`
}

type impersonationStarted struct {
	UserID         string `json:"userId"`
	Email          string `json:"email"`
	ImpersonatorID string `json:"impersonatorId"`
	Key            string `json:"key"`
	ExpiresAt      int64  `json:"expiresAt"`
}

const defaultImpersonation = 15 * time.Minute

// impersonate makes a key with which an internal admin acts as a person, and waits until it opens doors. That it was made
// is in the log of each of the person's workspaces.
func (s *Server) impersonate(c *call, in impersonationRequest) (impersonationStarted, error) {
	var none impersonationStarted
	length := time.Duration(in.Seconds) * time.Second
	if in.Seconds == 0 {
		length = defaultImpersonation
	}
	if in.Seconds < 0 || in.Seconds > int64(user.MaxImpersonation/time.Second) {
		return none, invalid("seconds must be from 1 to %d", int(user.MaxImpersonation.Seconds()))
	}
	admin, err := c.findAdmin(in.Admin)
	if err != nil {
		return none, err
	}
	person, err := c.findPerson(in.Email)
	if err != nil {
		return none, err
	}
	keyID := s.options.NewID(keyKind)
	text, hash := newKey(impersonationStart, keyID)
	start := &userv1.StartImpersonation{
		CredentialId: keyID, SecretSha256: hash, ImpersonatorId: admin, Reason: in.Reason,
		ExpiresAt: s.now().Add(length).UnixMilli(),
	}
	if _, err := ask[proto.Message](c, c.asPlatform(entity.KindUser, person.UserID, start)); err != nil {
		return none, err
	}
	started := impersonationStarted{person.UserID, person.Email, admin, text, start.GetExpiresAt()}
	return started, c.settle(entity.KindUser, person.UserID)
}

// findAdmin is the id of an internal admin who is let in.
func (c *call) findAdmin(address string) (string, error) {
	person, err := c.findPerson(address)
	if err != nil {
		return "", err
	}
	admin, err := ask[*userv1.Standing](c, entity.Command{
		Kind: entity.KindUser, Identity: person.UserID, Principal: entity.Platform(), Message: &userv1.DescribeStanding{},
	})
	switch {
	case err != nil:
		return "", err
	case !admin.GetInternalAdmin() || admin.GetDisabled():
		return "", entity.Errorf(entity.Forbidden, "admin is no internal admin, or disabled")
	}
	return person.UserID, nil
}
