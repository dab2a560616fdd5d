package oauth

import (
	"context"
	"net/http"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
)

// findClient returns the registered client with an id. No entity is activated for a text that is no client's id. Errors:
// invalid_client.
func (p *Provider) findClient(ctx context.Context, id string) (*clientv1.Client, error) {
	ulid, ok := strings.CutPrefix(id, clientPrefix)
	if !ok || !entity.IsULID(ulid) {
		return nil, invalidClient("No client with this client_id is registered.")
	}
	found, err := ask[*clientv1.Client](ctx, p, entity.KindClient, id, &clientv1.DescribeClient{})
	if server.HasCode(err, entity.NotFound) {
		return nil, invalidClient("No client with this client_id is registered.")
	}
	return found, err
}

// identifyClient returns the client that sent a form, by its client_id. Clients are public: a request with a secret, an
// assertion or an Authorization header is refused, because the client believes that it is protected by one. A parameter without a value
// counts as omitted (RFC 6749, section 3.2): some libraries send an empty secret for a public client. Errors: invalid_client.
func (p *Provider) identifyClient(r *http.Request) (*clientv1.Client, error) {
	for _, name := range []string{"client_secret", "client_assertion", "client_assertion_type"} {
		if r.PostForm.Get(name) != "" {
			return nil, invalidClient("Clients are public: token_endpoint_auth_method is none.")
		}
	}
	if r.Header.Get("Authorization") != "" {
		return nil, invalidClient("Clients are public: send client_id in the body and no Authorization header.")
	}
	return p.findClient(r.Context(), r.PostForm.Get("client_id"))
}

func invalidClient(description string) error {
	return &Error{Status: http.StatusUnauthorized, Name: "invalid_client", Description: description}
}
