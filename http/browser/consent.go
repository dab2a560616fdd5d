package browser

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service/account"
)

// consentPages asks people for the rights of an OAuth client. Package oauth describes the whole flow.
type consentPages struct{ provider *oauth.Provider }

func (p consentPages) routes() []server.Route {
	return []server.Route{
		page(http.MethodGet, oauth.AuthorizePath, server.ScopePublic, "Show the consent page of an OAuth client", p.ask),
		page(http.MethodPost, oauth.AuthorizePath, server.ScopePublic, "Answer the consent page of an OAuth client", p.answer),
	}
}

// consentTime is the time within which a consent page must be answered.
const consentTime = 10 * time.Minute

// consent is an authorization request, with the person who must consent, and the excerpt of the person's workspaces that the page shows.
type consent struct {
	*oauth.Request
	user    *userv1.User
	excerpt excerpt
}

// ask shows the consent page. The visitor must be signed in first: only signed-in visitors are redirected to an address of the
// client's choice.
func (p consentPages) ask(c *server.Call) (result, error) {
	asked, away, err := p.begin(c)
	if asked == nil {
		return away, err
	}
	return asked.page(c, "")
}

// answer takes the person's answer to a consent page that was shown in this session for the same request.
func (p consentPages) answer(c *server.Call) (result, error) {
	form, err := parseForm(c, "scope")
	if err != nil {
		return result{}, err
	}
	asked, away, err := p.begin(c)
	switch {
	case asked == nil:
		return away, err
	case form.Get("decision") == "deny":
		return result{redirectTo: asked.Refuse(oauth.Denied)}, nil
	case form.Get("decision") != "allow":
		return result{}, server.Invalid("decision must be allow or deny")
	case !asked.isTicketValid(c, form.Get("ticket")):
		return asked.page(c, "The page was open for too long. Answer again.")
	}
	chosen, err := asked.findChosen(c, form.Get("workspace"))
	switch {
	case err != nil:
		c.Log().Warn("reading the chosen workspace failed", "error", err)
		again, err := asked.page(c, "The workspace does not answer at the moment, and nothing was allowed. Try again.")
		again.status = http.StatusServiceUnavailable
		return again, err
	case chosen == nil:
		return asked.page(c, "Choose a workspace.")
	}
	granted := intersect(chosen.scopes, form["scope"])
	if len(granted) == 0 {
		return asked.page(c, "Your role in that workspace has none of the permissions that you selected.")
	}
	return asked.allow(c, chosen.workspace, granted)
}

func (k *consent) allow(c *server.Call, into *workspacev1.Workspace, granted []string) (result, error) {
	to, err := k.Allow(c.Context, c.Response.ID, oauth.Consent{Person: c.Caller.Principal, Workspace: into, Scopes: granted})
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && refused.Code == entity.LimitReached:
		return k.page(c, sentence(refused.Message))
	case err != nil:
		return result{}, err
	}
	return result{redirectTo: to}, nil
}

// begin finds the signed-in person and validates the authorization request. If the consent is nil, the result or the error
// is the response.
func (p consentPages) begin(c *server.Call) (*consent, result, error) {
	visitor, err := findVisitor(c)
	switch {
	case err != nil:
		return nil, result{}, err
	case visitor == nil:
		return nil, result{redirectTo: signInPathFor(c.Request.URL.RequestURI())}, nil
	}
	query, shown := cutExcerpt(c.Request.URL.RawQuery)
	request, err := p.provider.Begin(c.Context, c.Response.ID, c.Origin(), query)
	var refused *oauth.Error
	switch {
	case errors.As(err, &refused) && refused.Status >= http.StatusInternalServerError:
		return nil, result{}, errors.Unwrap(refused)
	case err != nil && request != nil:
		return nil, result{redirectTo: request.Refuse(err)}, nil
	case errors.As(err, &refused):
		shown := pages.Problem{Title: "This sign-in request is invalid", Text: refused.Description}
		return nil, result{page: shown, status: http.StatusBadRequest}, nil
	case err != nil:
		return nil, result{}, err
	}
	asked := &consent{Request: request, excerpt: shown}
	asked.user, err = account.DescribeCaller(c)
	if err != nil {
		return nil, result{}, err
	}
	return asked, result{}, nil
}

// intersect returns the texts that are in others too, in their order.
func intersect(texts, others []string) []string {
	var both []string
	for _, text := range texts {
		if slices.Contains(others, text) {
			both = append(both, text)
		}
	}
	return both
}

func (k *consent) page(c *server.Call, problem string) (result, error) {
	choices, search, total, err := k.show(c)
	if problem == "" && total == 0 && err == nil {
		problem = "You have no workspace in which your role has any of the requested permissions."
	}
	shown := pages.Consent{
		Action: k.excerpt.path(k.Query),
		Hidden: []pages.Field{{Name: "ticket", Value: k.ticket(c)}},
		Client: k.ClientName(), Host: k.Host(), Email: k.user.GetEmail(), Search: search, Problem: problem,
	}
	noteUnreached(c, &shown.IsIncomplete, err)
	for _, one := range choices {
		shown.Workspaces = append(shown.Workspaces, pages.Choice{Value: one.workspace.GetId(), Label: k.label(one)})
	}
	for _, scope := range k.Scopes() {
		shown.Scopes = append(shown.Scopes, pages.Choice{Value: scope, Label: oauth.DescribeScope(scope), Chosen: true})
	}
	return result{page: shown}, nil
}

// label returns the name of a workspace, with the requested scopes that the person lacks there.
func (k *consent) label(one choice) string {
	text := workspaceLabel(one.workspace.GetName(), one.workspace.GetSlug())
	var lacking []string
	for _, scope := range k.Scopes() {
		if !slices.Contains(one.scopes, scope) {
			lacking = append(lacking, scope)
		}
	}
	if len(lacking) > 0 {
		text += ", without " + strings.Join(lacking, ", ")
	}
	return text
}

// workspaceLabel returns a workspace's name and slug.
func workspaceLabel(name, slug string) string { return name + " (" + slug + ")" }

// ticket returns a text that binds the page to the session, the request with the excerpt, and the time.
func (k *consent) ticket(c *server.Call) string {
	return c.SealCursor(strconv.FormatInt(c.Now().UnixMilli(), 10), k.binding(c))
}

func (k *consent) binding(c *server.Call) []byte {
	return server.Binding("consent", c.Caller.Principal.GetCredentialId(), k.excerpt.path(k.Query))
}

// isTicketValid reports whether a ticket is of this session and request, and not older than consentTime.
func (k *consent) isTicketValid(c *server.Call, ticket string) bool {
	text, err := c.OpenCursor(ticket, k.binding(c))
	if err != nil {
		return false
	}
	at, err := strconv.ParseInt(text, 10, 64)
	return err == nil && c.Now().Sub(time.UnixMilli(at)) < consentTime
}
