package oauth

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/limit"
)

// endpoints serves the authorization server over HTTP.
type endpoints struct {
	*Provider
	// registrations limits the registrations from each address. all limits the registrations from all addresses together.
	registrations limit.ClientBuckets
	all           limit.Bucket
}

const serverMetadataPath = "/.well-known/oauth-authorization-server"

var (
	// perAddress is how many clients an address may register: one a minute, and ten at once after a pause.
	perAddress = limit.Allowance{Burst: 10, Interval: time.Minute}
	// perAll is how many clients all addresses together may register. It bounds the registrations that requests without a credential can
	// have stored, however many addresses they come from.
	perAll = limit.Allowance{Burst: 500, Interval: 2 * time.Second}
)

// Routes returns the table of the authorization server, except for the consent page. Programs in browsers may use all of it.
func (p *Provider) Routes() []server.Route {
	a := &endpoints{Provider: p, registrations: limit.NewClientBuckets()}
	table := []server.Route{
		{Method: http.MethodGet, Path: serverMetadataPath, Summary: "Describe the authorization server",
			Handler: server.Answer(http.StatusOK, server.Nothing, a.describeServer)},
		{Method: http.MethodGet, Path: server.ResourceMetadataPath, Summary: "Describe the API as a protected resource",
			Handler: server.Answer(http.StatusOK, server.Nothing, a.describeResource)},
		{Method: http.MethodPost, Path: RegisterPath, Summary: "Register an OAuth client", Handler: a.register},
		{Method: http.MethodPost, Path: TokenPath, Summary: "Exchange a code or a refresh token", Handler: a.exchange},
		{Method: http.MethodPost, Path: RevokePath, Idempotent: true, Summary: "Revoke a token and its grant", Handler: a.revoke},
	}
	for _, part := range p.Resources {
		table = append(table, server.Route{
			Method: http.MethodGet, Path: server.ResourceMetadataPath + part.Path,
			Summary: "Describe " + part.Name + " as a protected resource",
			Handler: server.Answer(http.StatusOK, server.Nothing, func(c *server.Call, _ server.None) (ResourceMetadata, error) {
				return p.Part(c.Origin(), part), nil
			}),
		})
	}
	for _, r := range table {
		table = append(table, server.Route{
			Method: http.MethodOptions, Path: r.Path, Idempotent: true, Summary: "Answer a CORS preflight request", Handler: preflight,
		})
	}
	for i := range table {
		table[i].Scope, table[i].Handler, table[i].Refuse = server.ScopePublic, allowAnyOrigin(table[i].Handler), refuse
	}
	return table
}

// allowAnyOrigin permits pages of any origin to read the response. The operations ignore cookies.
func allowAnyOrigin(run server.Handler) server.Handler {
	return func(c *server.Call) error {
		c.Response.Header().Set("Access-Control-Allow-Origin", "*")
		return run(c)
	}
}

// refuse answers with an error of the server in the form of OAuth, because clients of OAuth know only that form. The status says the rest.
func refuse(w *server.Response, refused *entity.Error) {
	name := "invalid_request"
	switch refused.Code {
	case entity.RateLimited, entity.Unavailable:
		name = "temporarily_unavailable"
	case entity.Internal:
		name = "server_error"
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	w.WriteJSON(answer.Statuses[refused.Code], oauthRefusal{name, strings.ReplaceAll(refused.Message, `"`, "'")})
}

func preflight(c *server.Call) error {
	header := c.Response.Header()
	header.Set("Access-Control-Allow-Methods", "GET, POST")
	header.Set("Access-Control-Allow-Headers", "*")
	header.Set("Access-Control-Max-Age", "86400")
	c.Response.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *endpoints) describeServer(c *server.Call, _ server.None) (ServerMetadata, error) {
	return a.Server(c.Origin()), nil
}

func (a *endpoints) describeResource(c *server.Call, _ server.None) (ResourceMetadata, error) {
	return a.Resource(c.Origin()), nil
}

// register registers a client, within the limits for its address and for all addresses.
func (a *endpoints) register(c *server.Call) error {
	if wait := a.registrations.Take(c.Now(), limit.Client{Address: c.Address()}, perAddress); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many registrations from this address", RetryAfter: wait}
	}
	if err := server.CheckMediaType(c.Request.Header); err != nil {
		return err
	}
	body, err := c.ReadBody(MaxRegistration)
	if err != nil {
		return err
	}
	metadata, err := parseMetadata(body)
	if err != nil {
		return refuseClient(c, err)
	}
	// Only valid requests count against the limit of all addresses, which invalid ones could otherwise exhaust.
	if wait := a.all.Take(c.Now(), perAll); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many registrations", RetryAfter: wait}
	}
	registered, err := a.registerClient(c.Context, c.Response.ID, metadata)
	if err != nil {
		return refuseClient(c, err)
	}
	c.Response.WriteJSON(http.StatusCreated, registered)
	return nil
}

func (a *endpoints) exchange(c *server.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	given, err := a.Token(c.Request.WithContext(c.Context), c.Response.ID, c.Origin())
	if err != nil {
		return refuseClient(c, err)
	}
	c.Response.Header().Set("Pragma", "no-cache") // RFC 6749, section 5.1
	c.Response.WriteJSON(http.StatusOK, given)
	return nil
}

func (a *endpoints) revoke(c *server.Call) error {
	if err := readForm(c); err != nil {
		return err
	}
	if err := a.Revoke(c.Request.WithContext(c.Context), c.Response.ID); err != nil {
		return refuseClient(c, err)
	}
	c.Response.WriteJSON(http.StatusOK, struct{}{})
	return nil
}

// maxClientForm bounds the form of a token or revocation request, in bytes.
const maxClientForm = 16 << 10

// readForm sets PostForm of a request. A body of another media type is an empty form, which Token and Revoke refuse with an error of
// OAuth.
func readForm(c *server.Call) (err error) {
	if c.HasForm() {
		c.Request.PostForm, err = c.ReadForm(maxClientForm)
	}
	return err
}

type oauthRefusal struct {
	Error       string `json:"error"`
	Description string `json:"error_description,omitzero"`
}

// refuseClient answers with an error in the form of RFC 6749, section 5.2. It returns an error that is no *Error.
func refuseClient(c *server.Call, err error) error {
	var refused *Error
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Status >= http.StatusInternalServerError {
		c.Response.Err = refused
	}
	switch refused.Status {
	case http.StatusServiceUnavailable:
		c.Response.Header().Set("Retry-After", "1")
	case http.StatusUnauthorized:
		c.Response.Header()["Www-Authenticate"] = challengeScheme(c.Request)
	}
	c.Response.WriteJSON(refused.Status, oauthRefusal{refused.Name, refused.Description})
	return nil
}

// challengeScheme returns a challenge of the scheme that the client tried to authenticate with (RFC 6749, section 5.2).
func challengeScheme(r *http.Request) []string {
	if _, _, ok := r.BasicAuth(); ok {
		return []string{`Basic realm="Atelier", charset="UTF-8"`}
	}
	return []string{"Bearer"}
}
