package oauth

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/ory/fosite"
)

// Answer is what a token request is answered with.
type Answer struct {
	AccessToken  string `json:"access_token"`
	TokenType    string `json:"token_type"`
	ExpiresIn    int64  `json:"expires_in"`
	RefreshToken string `json:"refresh_token"`
	Scope        string `json:"scope"`
}

var grantTypes = []string{"authorization_code", "refresh_token"}

// Token exchanges a code or a refresh token. The request's form has been read, within a bound. Errors are *Error.
func (p *Provider) Token(r *http.Request, requestID string) (*Answer, error) {
	if err := checkForm(r); err != nil {
		return nil, asError(err)
	}
	if !slices.Contains(grantTypes, r.PostForm.Get("grant_type")) {
		return nil, asError(fosite.ErrUnsupportedGrantType)
	}
	ctx, _ := begin(r.Context(), requestID)
	asked, err := p.fosite.NewAccessRequest(ctx, r, &session{})
	if err == nil {
		err = p.checkResource(r.PostForm)
	}
	if err == nil && !asked.GetGrantedScopes().Has(wanted(r)...) {
		err = fosite.ErrInvalidScope.WithHint("It is more than was granted.")
	}
	if err != nil {
		return nil, asError(err)
	}
	response, err := p.fosite.NewAccessResponse(ctx, asked)
	if err != nil {
		return nil, asError(err)
	}
	refresh, _ := response.GetExtra("refresh_token").(string)
	scope, _ := response.GetExtra("scope").(string)
	return &Answer{
		AccessToken: response.GetAccessToken(), TokenType: "Bearer", ExpiresIn: int64(AccessLife.Seconds()),
		RefreshToken: refresh, Scope: scope,
	}, nil
}

// wanted are the scopes that a refresh names: some of those that were granted. Fewer are not given for it: what is
// given is in the answer (RFC 6749, section 3.3).
func wanted(r *http.Request) []string {
	if r.PostForm.Get("grant_type") != "refresh_token" {
		return nil
	}
	return strings.Fields(r.PostForm.Get("scope"))
}

// Revoke ends the family of a token that is the client's. One that is unknown is no error. Errors are *Error.
func (p *Provider) Revoke(r *http.Request, requestID string) error {
	if err := checkForm(r); err != nil {
		return asError(err)
	}
	if r.PostForm.Get("token") == "" {
		return asError(fosite.ErrInvalidRequest.WithHint("token is required."))
	}
	ctx, _ := begin(r.Context(), requestID)
	err := p.fosite.NewRevocationRequest(ctx, r)
	if err == nil || errors.Is(err, fosite.ErrUnauthorizedClient) { // another client's token is as good as unknown
		return nil
	}
	return asError(err)
}

func checkForm(r *http.Request) error {
	switch {
	case len(r.PostForm) == 0:
		return fosite.ErrInvalidRequest.WithHint("The body must be a form.")
	case repeated(r.PostForm) != "":
		return fosite.ErrInvalidRequest.WithHint("A parameter is there twice.")
	}
	return nil
}
