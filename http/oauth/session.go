package oauth

import (
	"encoding/base64"
	"net/url"
	"time"

	"github.com/ory/fosite"

	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
)

// session is whom fosite's requests are of.
type session struct{ userID, workspaceID string }

// SetExpiresAt is for nothing: when tokens expire is said where they are collected, by the clock of the entities.
func (s *session) SetExpiresAt(fosite.TokenType, time.Time) {}

func (s *session) GetExpiresAt(fosite.TokenType) time.Time { return time.Time{} }
func (s *session) GetUsername() string                     { return "" }
func (s *session) GetSubject() string                      { return s.userID }

func (s *session) Clone() fosite.Session {
	same := *s
	return &same
}

// requestOf is the request that a grant came from, as far as fosite asks for it later.
func (p *Provider) requestOf(g *grantv1.Grant) *fosite.Request {
	return &fosite.Request{
		ID:                g.GetId(),
		Client:            p.newClient(g.GetClientId()),
		RequestedScope:    g.GetScopes(),
		GrantedScope:      g.GetScopes(),
		RequestedAudience: fosite.Arguments{g.GetAudience()},
		GrantedAudience:   fosite.Arguments{g.GetAudience()},
		Session:           &session{g.GetUserId(), g.GetWorkspaceId()},
		Form: url.Values{
			"redirect_uri":          {g.GetRedirectUri()},
			"code_challenge":        {base64.RawURLEncoding.EncodeToString(g.GetCodeChallenge())},
			"code_challenge_method": {"S256"},
		},
	}
}
