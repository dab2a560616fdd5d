package operator

import (
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
)

// impersonations creates keys that let internal admins act as other people.
type impersonations struct{}

func (i impersonations) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: "/admin/impersonations", Scope: server.ScopeOperator, Summary: "Make a key with which an internal admin acts as a person",
			Handler: server.Answer(http.StatusCreated, server.Body[impersonationRequest], i.start)},
	}
}

type impersonationRequest struct {
	// Email is the address of the account to impersonate, Admin the address of the internal admin.
	Email  string `json:"email"`
	Admin  string `json:"admin"`
	Reason string `json:"reason"`
	// Seconds is the lifetime of the key; 0: 15 minutes.
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

// start creates a key that lets an internal admin act as a person. The key is valid when start returns; the audit log of each
// workspace of the person records it. Errors: not_found, forbidden, invalid_request.
func (i impersonations) start(c *server.Call, in impersonationRequest) (impersonationStarted, error) {
	var none impersonationStarted
	length := time.Duration(in.Seconds) * time.Second
	if in.Seconds == 0 {
		length = defaultImpersonation
	}
	if in.Seconds < 0 || in.Seconds > int64(user.MaxImpersonation/time.Second) {
		return none, server.Invalid("seconds must be from 1 to %d", int(user.MaxImpersonation.Seconds()))
	}
	admin, err := findAdmin(c, in.Admin)
	if err != nil {
		return none, err
	}
	person, err := findPerson(c, in.Email)
	if err != nil {
		return none, err
	}
	keyID := c.NewID(user.KeyPrefix)
	text, hash := keys.New(server.ImpersonationStart, keyID)
	start := &userv1.StartImpersonation{
		CredentialId: keyID, SecretSha256: hash, ImpersonatorId: admin, Reason: in.Reason,
		ExpiresAt: c.Now().Add(length).UnixMilli(),
	}
	_, err = account.IssueSecret[proto.Message](c, service.PlatformCommand(c, entity.KindUser, person.UserID, start),
		service.PlatformCommand(c, entity.KindCredential, keyID, &credentialv1.RevokeCredential{}))
	return impersonationStarted{person.UserID, person.Email, admin, text, start.GetExpiresAt()}, err
}

// findAdmin returns the id of an internal admin. Errors: not_found, forbidden if the account is disabled or no internal
// admin.
func findAdmin(c *server.Call, address string) (string, error) {
	person, err := findPerson(c, address)
	if err != nil {
		return "", err
	}
	admin, err := server.Ask[*userv1.Standing](c, entity.Command{
		Kind: entity.KindUser, Identity: person.UserID, Principal: entity.Platform(), Message: &userv1.DescribeStanding{},
	})
	switch {
	case err != nil:
		return "", err
	case !admin.GetInternalAdmin() || admin.GetDisabled():
		return "", entity.Errorf(entity.Forbidden, "admin is not an internal admin, or is disabled")
	}
	return person.UserID, nil
}
