package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"unicode"

	"github.com/atelier-run/atelier/entity"
	clients "github.com/atelier-run/atelier/entity/client"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
)

// MaxRegistration bounds the body of a registration, in bytes.
const MaxRegistration = 32 << 10

// metadata is the client metadata that the server uses (RFC 7591, section 2). All of it but redirect_uris is optional. The server
// ignores all other members.
type metadata struct {
	RedirectURIs []string `json:"redirect_uris"`
	Name         string   `json:"client_name"`
	URI          string   `json:"client_uri"`
}

// Registration is the response to a registration. The client must read in it which of its metadata the server has replaced (RFC 7591,
// section 3.2.1): all clients are public, and use the same grant types and response types.
type Registration struct {
	ClientID      string   `json:"client_id"`
	IssuedAt      int64    `json:"client_id_issued_at"` // in seconds since the Unix epoch
	Name          string   `json:"client_name,omitempty"`
	URI           string   `json:"client_uri,omitempty"`
	RedirectURIs  []string `json:"redirect_uris"`
	AuthMethod    string   `json:"token_endpoint_auth_method"`
	GrantTypes    []string `json:"grant_types"`
	ResponseTypes []string `json:"response_types"`
}

// registerClient registers a client. Errors are *Error.
func (p *Provider) registerClient(ctx context.Context, requestID string, in metadata) (*Registration, error) {
	id := p.NewID(clientPrefix)
	registered, err := ask[*clientv1.Client](withRequestID(ctx, requestID), p, entity.KindClient, id, &clientv1.RegisterClient{
		Client: &clientv1.Client{Id: id, Name: in.Name, RedirectUris: in.RedirectURIs, ClientUri: in.URI},
	})
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && refused.Code == entity.InvalidRequest:
		return nil, invalidMetadata(refused.Message)
	case err != nil:
		return nil, asError(err)
	}
	return &Registration{
		ClientID: id, IssuedAt: registered.GetCreatedAt() / 1000, Name: in.Name, URI: in.URI,
		RedirectURIs: in.RedirectURIs, AuthMethod: noMethods[0], GrantTypes: grantTypes, ResponseTypes: responseTypes,
	}, nil
}

// parseMetadata decodes and validates the metadata of a client that is to be registered. It leaves out a blank name, and a client_uri
// that is not the address of a web page.
func parseMetadata(body []byte) (metadata, error) {
	var in metadata
	if err := json.Unmarshal(body, &in); err != nil {
		return in, invalidMetadata("the body must be a JSON object of client metadata")
	}
	if strings.TrimSpace(in.Name) == "" {
		in.Name = ""
	}
	if !clients.IsWebPage(in.URI) {
		in.URI = ""
	}
	if err := in.check(); err != nil {
		return in, err
	}
	if err := clients.Check(&clientv1.Client{Name: in.Name, RedirectUris: in.RedirectURIs, ClientUri: in.URI}); err != nil {
		return in, invalidMetadata(err.Message)
	}
	return in, nil
}

func (m metadata) check() error {
	if len(m.RedirectURIs) == 0 || len(m.RedirectURIs) > clients.MaxRedirects {
		return invalidRedirect("redirect_uris must be 1 to 10")
	}
	for _, uri := range m.RedirectURIs {
		if err := checkRedirect(uri); err != nil {
			return err
		}
	}
	if strings.ContainsFunc(m.Name, changesDirection) { // the name could rearrange the text of the consent page
		return invalidMetadata("client_name has a character that changes the direction of text")
	}
	return nil
}

func changesDirection(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }

// hostCharacters are the characters of host names and addresses. URIs allow more of them, such as an asterisk, which the client
// could take for a pattern.
const hostCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]"

func checkRedirect(uri string) error {
	if err := clients.CheckRedirect(uri); err != nil {
		return invalidRedirect(err.Message)
	}
	parsed, err := url.Parse(uri)
	if err != nil || strings.Trim(parsed.Host, hostCharacters) != "" {
		return invalidRedirect("redirect_uris must have host names of letters, digits, hyphens and dots")
	}
	return nil
}

func invalidMetadata(description string) error {
	return refusal("invalid_client_metadata", description)
}

func invalidRedirect(description string) error {
	return refusal("invalid_redirect_uri", description)
}
