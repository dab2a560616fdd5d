package browser

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// consentPages asks people what an OAuth client may do.
type consentPages struct{ provider *oauth.Provider }

func (p consentPages) routes() []server.Route {
	return []server.Route{
		page(http.MethodGet, oauth.AuthorizePath, server.ScopePublic, "Ask a person what an OAuth client may do", p.ask),
		page(http.MethodPost, oauth.AuthorizePath, server.ScopePublic, "Answer what an OAuth client may do", p.answer),
	}
}

const (
	// consentTime is how long a consent page may stay open.
	consentTime = 10 * time.Minute
	// maxChoices bounds the workspaces that a consent page offers: those that were joined first.
	maxChoices = 200
)

// consent is an authorization request in front of the person who is to answer it.
type consent struct {
	*oauth.Request
	user    *userv1.User
	choices []choice
}

// choice is a workspace in which the person has some of what is asked for.
type choice struct {
	workspace *workspacev1.Workspace
	scopes    []string
}

// ask shows who asks for what. Signing in comes first: nobody else is led to where a client chose.
func (p consentPages) ask(c *server.Call) (result, error) {
	asked, away, err := p.begin(c)
	if asked == nil {
		return away, err
	}
	return asked.page(c, ""), nil
}

// answer takes the person's answer, of the page that was shown to this session for this very request.
func (p consentPages) answer(c *server.Call) (result, error) {
	form, err := parseForm(c)
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
		return asked.page(c, "The page was open for too long. Please answer once more."), nil
	}
	at := slices.IndexFunc(asked.choices, func(one choice) bool { return one.workspace.GetId() == form.Get("workspace") })
	if at < 0 {
		return asked.page(c, "Choose a workspace."), nil
	}
	granted := intersect(asked.choices[at].scopes, form["scope"])
	if len(granted) == 0 {
		return asked.page(c, "Nothing is left to allow: your role in that workspace has none of what is ticked."), nil
	}
	return asked.allow(c, asked.choices[at].workspace, granted)
}

func (k *consent) allow(c *server.Call, into *workspacev1.Workspace, granted []string) (result, error) {
	to, err := k.Allow(c.Context, c.Response.ID, oauth.Consent{Person: c.Caller.Principal, Workspace: into, Scopes: granted})
	var refused *entity.Error
	switch {
	case errors.As(err, &refused) && refused.Code == entity.LimitReached:
		return k.page(c, sentence(refused.Message)), nil
	case err != nil:
		return result{}, err
	}
	return result{redirectTo: to}, nil
}

// begin finds who is signed in and what is asked of them; where it is nil, the sheet or the error is the answer.
func (p consentPages) begin(c *server.Call) (*consent, result, error) {
	visitor, err := findVisitor(c)
	switch {
	case err != nil:
		return nil, result{}, err
	case visitor == nil:
		return nil, result{redirectTo: signInPathFor(c.Request.URL.RequestURI())}, nil
	}
	request, err := p.provider.Begin(c.Context, c.Response.ID, c.Request.URL.RawQuery)
	var refused *oauth.Error
	switch {
	case errors.As(err, &refused) && refused.Status >= http.StatusInternalServerError:
		return nil, result{}, errors.Unwrap(refused)
	case err != nil && request != nil:
		return nil, result{redirectTo: request.Refuse(err)}, nil
	case errors.As(err, &refused):
		shown := pages.Problem{Title: "This sign-in request is invalid", Text: refused.Description}
		return nil, result{page: "problem", data: shown, status: http.StatusBadRequest}, nil
	case err != nil:
		return nil, result{}, err
	}
	asked := &consent{Request: request}
	asked.user, err = api.DescribeCaller(c)
	if err == nil {
		err = asked.findChoices(c)
	}
	if err != nil {
		return nil, result{}, err
	}
	return asked, result{}, nil
}

// choose finds the workspaces where the person has some of what is asked for.
func (k *consent) findChoices(c *server.Call) error {
	ids := api.ReachableWorkspaces(c.Caller.Principal, k.user)
	found, err := api.DescribeWorkspaces(c, ids[:min(len(ids), maxChoices)])
	for _, d := range found {
		if scopes := intersect(k.Scopes(), d.GetCapabilities()); len(scopes) > 0 {
			k.choices = append(k.choices, choice{d.GetWorkspace(), scopes})
		}
	}
	return err
}

// common are the texts of the first that are in the second too.
func intersect(texts, others []string) []string {
	var both []string
	for _, text := range texts {
		if slices.Contains(others, text) {
			both = append(both, text)
		}
	}
	return both
}

func (k *consent) page(c *server.Call, problem string) result {
	if problem == "" && len(k.choices) == 0 {
		problem = "You have no workspace where your role has any of what is asked for."
	}
	shown := pages.Consent{
		Action: oauth.AuthorizePath + "?" + k.Query,
		Hidden: []pages.Field{{Name: "ticket", Value: k.ticket(c)}},
		Client: k.ClientName(), Host: k.Host(), Email: k.user.GetEmail(), Problem: problem,
	}
	for _, one := range k.choices {
		shown.Workspaces = append(shown.Workspaces, pages.Choice{Value: one.workspace.GetId(), Label: k.label(one)})
	}
	for _, scope := range k.Scopes() {
		shown.Scopes = append(shown.Scopes, pages.Choice{Value: scope, Label: oauth.DescribeScope(scope), Chosen: true})
	}
	c.Response.Header().Set("Content-Security-Policy", pages.Policy(k.Origin()))
	return result{page: "consent", data: shown}
}

// label names a workspace, and what the person cannot pass on there.
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

// workspaceLabel names a workspace to people, who know it by its name and its address.
func workspaceLabel(name, slug string) string { return name + " (" + slug + ")" }

// ticket binds a page to the session that it is shown to, to its request and to its time.
func (k *consent) ticket(c *server.Call) string {
	return c.SealCursor(strconv.FormatInt(c.Now().UnixMilli(), 10), k.binding(c))
}

func (k *consent) binding(c *server.Call) []byte {
	return server.Binding("consent", c.Caller.Principal.GetCredentialId(), k.Query)
}

func (k *consent) isTicketValid(c *server.Call, ticket string) bool {
	text, err := c.OpenCursor(ticket, k.binding(c))
	if err != nil {
		return false
	}
	at, err := strconv.ParseInt(text, 10, 64)
	return err == nil && c.Now().Sub(time.UnixMilli(at)) < consentTime
}
