package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/atelier-run/atelier/entity"
	clients "github.com/atelier-run/atelier/entity/client"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
)

// MaxRegistration bounds what a client tells of itself, in bytes.
const MaxRegistration = 32 << 10

// metadata is the client metadata that means something here (RFC 7591, section 2); the rest is ignored.
type metadata struct {
	RedirectURIs  []string `json:"redirect_uris"`
	Name          string   `json:"client_name"`
	URI           string   `json:"client_uri"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
}

// Registration is what a client is told of itself.
type Registration struct {
	ClientID      string   `json:"client_id"`
	IssuedAt      int64    `json:"client_id_issued_at"` // in seconds, as RFC 7591 has it
	Name          string   `json:"client_name"`
	URI           string   `json:"client_uri,omitempty"`
	RedirectURIs  []string `json:"redirect_uris"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
}

// Register makes a client known. Errors are *Error.
func (p *Provider) Register(ctx context.Context, requestID string, body []byte) (*Registration, error) {
	var in metadata
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, badMetadata("the body must be a JSON object of client metadata")
	}
	if err := in.check(); err != nil {
		return nil, err
	}
	ctx, _ = begin(ctx, requestID)
	id := p.NewID(clientPrefix)
	reply, err := p.ask(ctx, entity.KindClient, id, &clientv1.RegisterClient{Client: &clientv1.Client{
		Id: id, Name: in.Name, RedirectUris: in.RedirectURIs, ClientUri: in.URI,
	}})
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && refused.Code == entity.InvalidRequest:
		return nil, badMetadata(refused.Message)
	case err != nil:
		return nil, asError(err)
	}
	registered, _ := reply.(*clientv1.Client)
	return &Registration{
		ClientID: id, IssuedAt: registered.GetCreatedAt() / 1000, Name: in.Name, URI: in.URI,
		RedirectURIs: in.RedirectURIs, AuthMethod: "none", GrantTypes: grantTypes, ResponseTypes: responseTypes,
	}, nil
}

func (m metadata) check() error {
	if len(m.RedirectURIs) == 0 || len(m.RedirectURIs) > clients.MaxRedirects {
		return badRedirect("redirect_uris must be 1 to 10")
	}
	for _, uri := range m.RedirectURIs {
		if err := checkRedirect(uri); err != nil {
			return err
		}
	}
	switch {
	case strings.ContainsFunc(m.Name, turnsText): // the consent page is to be read as it stands
		return badMetadata("client_name has a character that changes the direction of text")
	case m.AuthMethod != "" && m.AuthMethod != "none":
		return badMetadata("token_endpoint_auth_method must be none: clients are public")
	case len(m.GrantTypes) > 0 && !slices.Contains(m.GrantTypes, "authorization_code"):
		return badMetadata("grant_types must have authorization_code")
	case len(m.ResponseTypes) > 0 && !slices.Contains(m.ResponseTypes, "code"):
		return badMetadata("response_types must have code")
	}
	return nil
}

func turnsText(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }

// hostCharacters are those of host names and addresses. Others, which URIs allow as well, would mean something else in
// the header that lets a browser go there.
const hostCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]"

func checkRedirect(uri string) error {
	if err := clients.CheckRedirect(uri); err != nil {
		return badRedirect(err.Message)
	}
	parsed, err := url.Parse(uri)
	if err != nil || strings.Trim(parsed.Host, hostCharacters) != "" {
		return badRedirect("redirect_uris must have plain host names")
	}
	return nil
}

func badMetadata(why string) *Error {
	return &Error{Status: http.StatusBadRequest, Name: "invalid_client_metadata", Description: why}
}

func badRedirect(why string) *Error {
	return &Error{Status: http.StatusBadRequest, Name: "invalid_redirect_uri", Description: why}
}
