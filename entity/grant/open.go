package grant

import (
	"bytes"
	"crypto/sha256"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/client"
	"github.com/atelier-run/atelier/entity/user"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
)

var (
	errID        = entity.Errorf(entity.InvalidRequest, "grant id is another one's")
	errParties   = entity.Errorf(entity.InvalidRequest, "userId, clientId or workspaceId is empty")
	errAudience  = entity.Errorf(entity.InvalidRequest, "resource must have 1 to %d bytes", client.MaxURILength)
	errRedirect  = entity.Errorf(entity.InvalidRequest, "redirect_uri must have 1 to %d bytes", client.MaxURILength)
	errChallenge = entity.Errorf(entity.InvalidRequest, "code_challenge is no SHA-256")
	errCode      = entity.Errorf(entity.InvalidRequest, "a code is a SHA-256 that expires within %s", MaxCodeAge)
	errOther     = entity.Errorf(entity.InvalidRequest, "grant id has another code or person")
)

func openGrant(call entity.Call, s, c *grantv1.Grant) ([]grantv1.Event, error) {
	if opened(s) {
		if s.GetUserId() != c.GetUserId() || !bytes.Equal(s.GetCode().GetSecretSha256(), c.GetCode().GetSecretSha256()) {
			return nil, errOther
		}
		return nil, nil
	}
	if err := check(call, c); err != nil {
		return nil, err
	}
	return []grantv1.Event{&grantv1.GrantOpened{Grant: &grantv1.Grant{
		Id: c.GetId(), UserId: c.GetUserId(), ClientId: c.GetClientId(), WorkspaceId: c.GetWorkspaceId(),
		Scopes: c.GetScopes(), Audience: c.GetAudience(), RedirectUri: c.GetRedirectUri(),
		CodeChallenge: c.GetCodeChallenge(), Code: c.GetCode(), CreatedAt: call.At(),
	}}}, nil
}

func check(call entity.Call, c *grantv1.Grant) error {
	switch {
	case c.GetId() != call.Identity:
		return errID
	case c.GetUserId() == "", c.GetClientId() == "", c.GetWorkspaceId() == "":
		return errParties
	case !isURI(c.GetAudience()):
		return errAudience
	case !isURI(c.GetRedirectUri()):
		return errRedirect
	case len(c.GetCodeChallenge()) != sha256.Size:
		return errChallenge
	case !isToken(call, c.GetCode()), c.GetCode().GetExpiresAt() > call.At()+MaxCodeAge.Milliseconds():
		return errCode
	}
	return user.CheckScopes(c.GetScopes())
}

func isURI(text string) bool { return text != "" && len(text) <= client.MaxURILength }
