package http

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/oauth"
)

// oauthServer is the authorization server (http/oauth) behind HTTP.
type oauthServer struct {
	*oauth.Provider
	// registrations limits those of an address, in minutes where other buckets have seconds, and all those of everybody.
	registrations *addresses
	all           bucket
}

const (
	serverMetadataPath   = "/.well-known/oauth-authorization-server"
	resourceMetadataPath = "/.well-known/oauth-protected-resource"
	// registrationBurst registrations may an address save up, of one a minute.
	registrationBurst = 10
	// allBurst registrations may be saved up by everybody, of one each allEach: what strangers can have written down is
	// bounded, however many addresses they have.
	allBurst = 500
	allEach  = 2 * time.Second
)

// oauthRoutes is the table of the authorization server. Programs in browsers reach all of it but the consent page.
func (s *Server) oauthRoutes() []route {
	a := &oauthServer{Provider: s.newProvider(), registrations: newAddresses()}
	const get, post, options = http.MethodGet, http.MethodPost, http.MethodOptions
	table := []route{
		{get, oauth.AuthorizePath, public, false, "Ask a person what an OAuth client may do", onPage(a.askConsent), paged, false},
		{post, oauth.AuthorizePath, public, false, "Answer what an OAuth client may do", onPage(a.answerConsent), paged, false},
		{get, serverMetadataPath, public, false, "Describe the authorization server", anywhere(answer(200, nothing, a.describeServer)), brief, false},
		{get, resourceMetadataPath, public, false, "Describe the API as a protected resource", anywhere(answer(200, nothing, a.describeResource)), brief, false},
		{post, oauth.RegisterPath, public, false, "Register an OAuth client", anywhere(a.register), brief, false},
		{post, oauth.TokenPath, public, false, "Exchange a code or a refresh token", anywhere(a.exchange), brief, false},
		{post, oauth.RevokePath, public, true, "Revoke a token and every other of its grant", anywhere(a.revoke), brief, false},
	}
	for _, path := range []string{serverMetadataPath, resourceMetadataPath, oauth.RegisterPath, oauth.TokenPath, oauth.RevokePath} {
		table = append(table, route{options, path, public, true, "Let pages of other origins ask", anywhere(preflight), brief, false})
	}
	return table
}

func (s *Server) newProvider() *oauth.Provider {
	return oauth.New(oauth.Options{
		Asker: s.options.Asker, URL: s.options.PublicURL, Now: s.now, NewID: s.options.NewID, Mint: newKey, Split: splitToken,
		Ended: s.forgetCredential,
	})
}

// anywhere lets pages of any origin read the answer. They send no cookie, and none is looked at.
func anywhere(run handler) handler {
	return func(c *call) error {
		c.w.Header().Set("Access-Control-Allow-Origin", "*")
		return run(c)
	}
}

func preflight(c *call) error {
	header := c.w.Header()
	header.Set("Access-Control-Allow-Methods", "GET, POST")
	header.Set("Access-Control-Allow-Headers", "*")
	header.Set("Access-Control-Max-Age", "86400")
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *oauthServer) describeServer(*call, none) (oauth.ServerMetadata, error) {
	return a.Server(), nil
}

func (a *oauthServer) describeResource(*call, none) (oauth.ResourceMetadata, error) {
	return a.Resource(), nil
}

// register makes a client known, which is all that strangers can have written down: a few of an address, and not too many
// in all.
func (a *oauthServer) register(c *call) error {
	slow := time.Unix(0, c.server.now().UnixNano()/60)
	if wait := a.registrations.bucket(c.address()).take(slow, 1, registrationBurst); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many registrations from this address", RetryAfter: 60 * wait}
	}
	if err := checkMediaType(c.r.Header); err != nil {
		return err
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, oauth.MaxRegistration))
	if err != nil {
		return tooLargeOr(err, oauth.MaxRegistration)
	}
	if wait := a.all.takeEach(c.server.now(), allEach, allBurst); wait > 0 {
		return &entity.Error{Code: entity.RateLimited, Message: "too many registrations", RetryAfter: wait}
	}
	registered, err := a.Register(c.ctx, c.w.id, body)
	if err != nil {
		return c.refuseClient(err)
	}
	c.w.json(http.StatusCreated, registered)
	return nil
}

func tooLargeOr(err error, most int) error {
	var limit *http.MaxBytesError
	if errors.As(err, &limit) {
		return entity.Errorf(entity.PayloadTooLarge, "the body is larger than %d bytes", most)
	}
	return invalid("the body could not be read")
}

func (a *oauthServer) exchange(c *call) error {
	if err := c.readForm(); err != nil {
		return err
	}
	given, err := a.Token(c.r.WithContext(c.ctx), c.w.id)
	if err != nil {
		return c.refuseClient(err)
	}
	c.w.Header().Set("Pragma", "no-cache") // RFC 6749, section 5.1
	c.w.json(http.StatusOK, given)
	return nil
}

func (a *oauthServer) revoke(c *call) error {
	if err := c.readForm(); err != nil {
		return err
	}
	if err := a.Revoke(c.r.WithContext(c.ctx), c.w.id); err != nil {
		return c.refuseClient(err)
	}
	c.w.json(http.StatusOK, struct{}{})
	return nil
}

// maxClientForm bounds what a client sends for tokens, in bytes.
const maxClientForm = 16 << 10

// readForm reads a client's form. One of another type is empty, which is refused in OAuth's words.
func (c *call) readForm() error {
	media, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return nil
	}
	c.r.Body = http.MaxBytesReader(c.w, c.r.Body, maxClientForm)
	if err := c.r.ParseForm(); err != nil {
		return tooLargeOr(err, maxClientForm)
	}
	return nil
}

type oauthRefusal struct {
	Error       string `json:"error"`
	Description string `json:"error_description,omitzero"`
}

// refuseClient answers with an error of OAuth.
func (c *call) refuseClient(err error) error {
	var refused *oauth.Error
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Status >= http.StatusInternalServerError {
		c.w.failed = refused
	}
	switch refused.Status {
	case http.StatusServiceUnavailable:
		c.w.Header().Set("Retry-After", "1")
	case http.StatusUnauthorized:
		c.w.Header()["Www-Authenticate"] = tried(c.r)
	}
	c.w.json(refused.Status, oauthRefusal{refused.Name, refused.Description})
	return nil
}

// tried is the scheme by which a client tried to authenticate, which it is told back (RFC 6749, section 5.2).
func tried(r *http.Request) []string {
	if _, _, ok := r.BasicAuth(); ok {
		return []string{`Basic realm="Atelier", charset="UTF-8"`}
	}
	return []string{"Bearer"}
}
