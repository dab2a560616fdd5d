package oauth

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/atelier-run/atelier/entity"
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
	if entity.HasCode(err, entity.NotFound) {
		return nil, invalidClient("No client with this client_id is registered.")
	}
	return found, err
}

// identifyClient returns the client that sent a form, by its client_id in the form or in HTTP Basic. Clients are public: a request with a
// secret, an assertion or another Authorization header is refused, because the client believes that it is protected by one. A parameter
// without a value counts as omitted (RFC 6749, section 3.2): some libraries send an empty secret for a public client, in the form or with
// HTTP Basic. Errors: invalid_client.
func (p *Provider) identifyClient(r *http.Request) (*clientv1.Client, error) {
	for _, name := range []string{"client_secret", "client_assertion", "client_assertion_type"} {
		if r.PostForm.Get(name) != "" {
			return nil, invalidClient("Clients are public: token_endpoint_auth_method is none.")
		}
	}
	id := r.PostForm.Get("client_id")
	if r.Header.Get("Authorization") != "" {
		user, secret, _ := r.BasicAuth()
		inHeader, err := url.QueryUnescape(user) // RFC 6749, section 2.3.1
		if err != nil || inHeader == "" || secret != "" || id != "" && id != inHeader {
			return nil, invalidClient("Clients are public: send client_id in the body and no Authorization header.")
		}
		id = inHeader
	}
	return p.findClient(r.Context(), id)
}

func invalidClient(description string) error {
	return &Error{Status: http.StatusUnauthorized, Name: "invalid_client", Description: description}
}
