package browser

import (
	"context"
	"errors"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/service/account"
)

var (
	errNoEmail            = entity.Errorf(entity.Forbidden, "the provider has sent no email address, neither in the ID token nor from its userinfo endpoint; its administrator has to let it give the claims email and email_verified to this service")
	errInvalidEmail       = entity.Errorf(entity.Forbidden, "the provider has sent an email address that is not valid here")
	errNoVerification     = entity.Errorf(entity.Forbidden, "the provider has sent your email address without the claim email_verified; its administrator has to let it give that claim to this service")
	errVerificationFormat = entity.Errorf(entity.Forbidden, "the provider has sent the claim email_verified in another form than true or false; its administrator has to correct that")
	errUnverifiedEmail    = entity.Errorf(entity.Forbidden, "the provider has not verified your email address")
)

// signedIn is the answer of a provider to a sign-in: a verified id token, and the access token for the userinfo endpoint.
type signedIn struct {
	*oidc.IDToken
	provider *oidc.Provider
	access   *oauth2.Token
}

// emailClaims are the claims about the email address (OpenID Connect Core 1.0, section 5.1). A nil field is missing.
type emailClaims struct {
	Email *string `json:"email"`
	// Verified must be a boolean; the text "true" is not accepted.
	Verified any `json:"email_verified"`
}

// isComplete reports whether nothing can be learned from the userinfo endpoint.
func (e emailClaims) isComplete() bool { return e.Email != nil && e.Verified != nil }

// readVerifiedEmail returns the email address of the person that the provider has verified. A provider may give the claims in
// the id token, or only at its userinfo endpoint (OpenID Connect Core 1.0, section 5.4). Errors: forbidden, unavailable.
func (s signedIn) readVerifiedEmail(ctx context.Context, c *server.Call) (string, error) {
	var claims emailClaims
	if err := s.Claims(&claims); err != nil {
		logRejection(c, err)
		return "", errDeclined
	}
	if !claims.isComplete() && s.provider.UserInfoEndpoint() != "" {
		info, err := s.provider.UserInfo(ctx, oauth2.StaticTokenSource(s.access))
		switch {
		case err != nil:
			return "", logUnavailable(c, err)
		case info.Subject != s.Subject: // section 5.3.2
			logRejection(c, errors.New("the userinfo endpoint has answered with another subject than that of the id token"))
			return "", errDeclined
		}
		claims = emailClaims{}
		if err := info.Claims(&claims); err != nil {
			logRejection(c, err)
			return "", errDeclined
		}
	}
	return claims.verified()
}

// verified returns the canonical address. Errors: forbidden.
func (e emailClaims) verified() (string, error) {
	if e.Email == nil || *e.Email == "" {
		return "", errNoEmail
	}
	isVerified, isBoolean := e.Verified.(bool)
	switch {
	case e.Verified == nil:
		return "", errNoVerification
	case !isBoolean:
		return "", errVerificationFormat
	case !isVerified:
		return "", errUnverifiedEmail
	}
	address, err := account.CanonicalEmail(*e.Email)
	if err != nil {
		return "", errInvalidEmail
	}
	return address, nil
}
