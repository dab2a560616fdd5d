package browser

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/atelier-run/atelier/http/browser/pages"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/server"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service/account"
)

const (
	// choicesPerPage is the number of workspaces that a consent page offers at a time.
	choicesPerPage = 100
	// maxFind bounds the text that finds a workspace, in bytes: the form takes 100 characters.
	maxFind = 400
	// findName and pageName are the parameters of an excerpt.
	findName = "find"
	pageName = "page"
)

// excerpt says which workspaces a consent page offers. Its parameters are in the query of the page, beside the client's parameters.
// oauth.Provider gets the client's parameters only.
type excerpt struct {
	// find is a part of the name or the slug of a workspace, in any case; "" for all workspaces.
	find string
	// page is the number of the page, from 1. It may be behind the last page.
	page int
}

// cutExcerpt returns the query of a consent page without the parameters of the excerpt, and the excerpt. The other parameters are as they
// were sent.
func cutExcerpt(query string) (client string, e excerpt) {
	e.page = 1
	var rest []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		name, errName := url.QueryUnescape(name)
		value, errValue := url.QueryUnescape(value)
		switch {
		case errors.Join(errName, errValue) != nil, name != findName && name != pageName:
			rest = append(rest, part) // oauth.Provider refuses a malformed query
		case name == findName:
			e.find = strings.TrimSpace(truncate(value, maxFind))
		default:
			number, _ := strconv.Atoi(value)
			e.page = max(1, number)
		}
	}
	return strings.Join(rest, "&"), e
}

// path returns the path of the consent page of a client's request with the excerpt.
func (e excerpt) path(client string) string {
	shown := url.Values{}
	if e.find != "" {
		shown.Set(findName, e.find)
	}
	if e.page > 1 {
		shown.Set(pageName, strconv.Itoa(e.page))
	}
	if len(shown) == 0 {
		return oauth.AuthorizePath + "?" + client
	}
	return oauth.AuthorizePath + "?" + client + "&" + shown.Encode()
}

// choice is a workspace in which the person has some of the requested scopes.
type choice struct {
	workspace *workspacev1.Workspace
	scopes    []string
}

// matches reports whether the name or the slug of the workspace contains a text, in any case.
func (one choice) matches(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(strings.ToLower(one.workspace.GetName()), text) || strings.Contains(one.workspace.GetSlug(), text)
}

// findChoices returns a choice for each workspace of the ids where the person has some of the requested scopes. If workspaces are not
// reached, it returns an error and the choices among the others.
func (k *consent) findChoices(c *server.Call, ids []string) ([]choice, error) {
	var choices []choice
	found, err := account.DescribeWorkspaces(c, ids)
	for _, d := range found {
		if scopes := intersect(k.Scopes(), d.GetCapabilities()); len(scopes) > 0 {
			choices = append(choices, choice{d.GetWorkspace(), scopes})
		}
	}
	return choices, err
}

// findChosen returns the workspace that the person has chosen, on whichever page, or nil if the person cannot choose it.
func (k *consent) findChosen(c *server.Call, id string) (*choice, error) {
	if !slices.Contains(account.ReachableWorkspaces(c.Caller.Principal, k.user), id) {
		return nil, nil
	}
	choices, err := k.findChoices(c, []string{id})
	if err != nil || len(choices) == 0 {
		return nil, err
	}
	return &choices[0], nil
}

// show returns the choices that the page shows, in the order of joining, the form that finds the other choices, which is nil if the page
// has all of them, and the number of all choices. If workspaces are not reached, it returns an error too, and they are not among the choices.
func (k *consent) show(c *server.Call) (shown []choice, search *pages.WorkspaceSearch, total int, err error) {
	all, err := k.findChoices(c, account.ReachableWorkspaces(c.Caller.Principal, k.user))
	shown = slices.Clone(all)
	if k.excerpt.find != "" {
		shown = slices.DeleteFunc(shown, func(one choice) bool { return !one.matches(k.excerpt.find) })
	}
	matching := len(shown)
	last := max(1, (matching+choicesPerPage-1)/choicesPerPage)
	number := min(k.excerpt.page, last)
	first := (number - 1) * choicesPerPage
	shown = shown[first:min(matching, first+choicesPerPage)]
	if len(shown) == len(all) {
		return shown, nil, len(all), err
	}
	search = &pages.WorkspaceSearch{Action: oauth.AuthorizePath, Hidden: fieldsOf(k.Query), Find: k.excerpt.find}
	search.Summary = fmt.Sprintf("You can choose one of %d workspaces.", len(all))
	if k.excerpt.find != "" {
		search.Summary = fmt.Sprintf("%d of %d workspaces match.", matching, len(all))
		search.All = excerpt{}.path(k.Query)
	}
	if last > 1 {
		search.Summary += fmt.Sprintf(" This page has %d to %d.", first+1, first+len(shown))
	}
	if number > 1 {
		search.Previous = excerpt{k.excerpt.find, number - 1}.path(k.Query)
	}
	if number < last {
		search.Next = excerpt{k.excerpt.find, number + 1}.path(k.Query)
	}
	return shown, search, len(all), err
}

// fieldsOf returns the parameters of a query in canonical form as the hidden fields of a form.
func fieldsOf(query string) []pages.Field {
	var fields []pages.Field
	form, _ := url.ParseQuery(query) // it was encoded by url.Values
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, value := range form[name] {
			fields = append(fields, pages.Field{Name: name, Value: value})
		}
	}
	return fields
}
