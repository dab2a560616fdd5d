package oauth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ory/fosite"

	"github.com/atelier-run/atelier/entity"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
)

// client is a registered one. All are alike: public, and with both grant types.
type client struct {
	*fosite.DefaultResponseModeClient
	name string
}

func (p *Provider) newClient(id string) *client {
	return &client{DefaultResponseModeClient: &fosite.DefaultResponseModeClient{
		DefaultClient: &fosite.DefaultClient{
			ID: id, Public: true, GrantTypes: grantTypes, ResponseTypes: responseTypes, Scopes: scopes,
			Audience: []string{p.issuer},
		},
		ResponseModes: []fosite.ResponseModeType{fosite.ResponseModeQuery},
	}}
}

// GetClient finds a registered client. No entity is woken for an id that none can have.
func (s *store) GetClient(ctx context.Context, id string) (fosite.Client, error) {
	ulid, ok := strings.CutPrefix(id, clientPrefix)
	if !ok || !entity.IsULID(ulid) {
		return nil, fosite.ErrNotFound
	}
	reply, err := s.ask(ctx, entity.KindClient, id, &clientv1.DescribeClient{})
	found, _ := reply.(*clientv1.Client)
	switch {
	case missing(err):
		return nil, fosite.ErrNotFound
	case err != nil:
		return nil, err
	case found.GetId() != id:
		return nil, fosite.ErrNotFound
	}
	c := s.newClient(id)
	c.name, c.RedirectURIs = found.GetName(), found.GetRedirectUris()
	return c, nil
}

// ClientAssertionJWTValid and SetClientAssertionJWT are for clients with keys, of which there are none.
func (s *store) ClientAssertionJWTValid(context.Context, string) error { return fosite.ErrJTIKnown }

func (s *store) SetClientAssertionJWT(context.Context, string, time.Time) error {
	return fosite.ErrJTIKnown
}

// identifyClient finds the client of a request by its client_id alone: what else it proves itself with, no client has.
func (p *Provider) identifyClient(ctx context.Context, r *http.Request, form url.Values) (fosite.Client, error) {
	for _, secret := range []string{"client_secret", "client_assertion", "client_assertion_type"} {
		if form.Has(secret) {
			return nil, fosite.ErrInvalidClient.WithHint("Clients are public: token_endpoint_auth_method is none.")
		}
	}
	if r.Header.Get("Authorization") != "" {
		return nil, fosite.ErrInvalidClient.WithHint("Clients are public: they send client_id in the body.")
	}
	found, err := p.fosite.Store.GetClient(ctx, form.Get("client_id"))
	if errors.Is(err, fosite.ErrNotFound) {
		return nil, fosite.ErrInvalidClient.WithHint("No such client is registered.")
	}
	return found, err
}
