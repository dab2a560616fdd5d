package oauth

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var (
	linkOf   = regexp.MustCompile(`<a href="([^"]*)">([^<]*)</a>`)
	searchOf = regexp.MustCompile(`(?s)<form method="get" action="/oauth/authorize".*?</form>`)
)

// own creates a workspace of a person, without a request for each.
func (w *world) own(p person, slug, name string) string {
	w.Helper()
	id := w.newID("ws_")
	w.ask(entity.KindWorkspace, id, &workspacev1.CreateWorkspace{Slug: slug, Name: name, CreatorId: p.id, CreatorEmail: p.email})
	return id
}

// split returns the search form of a consent page, "" if it has none, and the page without the form.
func split(page string) (search, rest string) {
	search = searchOf.FindString(page)
	return search, strings.Replace(page, search, "", 1)
}

// goTo returns the path of the link with a text; "" if the page has no such link.
func goTo(page, text string) string {
	for _, link := range linkOf.FindAllStringSubmatch(page, -1) {
		if link[2] == text {
			return html.UnescapeString(link[1])
		}
	}
	return ""
}

// visit requests a page of the list of workspaces.
func (w *world) visit(p person, path string) (page string) {
	w.Helper()
	response, page := w.send("GET", path, "", "Cookie", p.cookie)
	if response.StatusCode != http.StatusOK {
		w.Fatalf("%s: %d %s", path, response.StatusCode, page)
	}
	return page
}

// find submits the search form of a page with a text.
func (w *world) find(p person, page, text string) (found string) {
	w.Helper()
	search, _ := split(page)
	form := url.Values{"find": {text}}
	for _, field := range hiddenOf.FindAllStringSubmatch(search, -1) {
		form.Add(field[1], html.UnescapeString(field[2]))
	}
	return w.visit(p, "/oauth/authorize?"+form.Encode())
}

func idsOffered(page string) (ids []string) {
	for _, option := range optionOf.FindAllStringSubmatch(page, -1) {
		ids = append(ids, option[1])
	}
	return ids
}

// TestConsentOffersEveryWorkspace consents for a person with more workspaces than a consent page shows.
func TestConsentOffersEveryWorkspace(t *testing.T) {
	w, alice, client := stage(t)
	query := asking(client, "files:read", "files:write")
	query["resource"] = []string{w.url, w.url + "/mcp"} // the one parameter that a request may repeat
	_, page := w.open(alice, query)
	if search, _ := split(page); search != "" {
		t.Errorf("the page with one workspace has a search: %s", search)
	}
	ids := idsOffered(page)
	for n := range 204 {
		ids = append(ids, w.own(alice, fmt.Sprintf("w%03d", n), fmt.Sprintf("Number %03d & more", n)))
	}

	_, first := w.open(alice, query)
	if !strings.Contains(first, "You can choose one of 205 workspaces. This page has 1 to 100.") || goTo(first, "Previous page") != "" {
		t.Errorf("the first page: %s", first)
	}
	second := w.visit(alice, goTo(first, "Next page"))
	third := w.visit(alice, goTo(second, "Next page"))
	if !strings.Contains(third, "This page has 201 to 205.") || goTo(third, "Next page") != "" || w.visit(alice, goTo(third, "Previous page")) == "" {
		t.Errorf("the last page: %s", third)
	}
	if offered := slices.Concat(idsOffered(first), idsOffered(second), idsOffered(third)); !slices.Equal(offered, ids) {
		t.Errorf("the pages offer %d workspaces, want %d", len(offered), len(ids))
	}

	found := w.find(alice, first, " nUMBER 20")
	if !strings.Contains(found, "4 of 205 workspaces match.") || !slices.Equal(idsOffered(found), ids[201:]) || goTo(found, "All workspaces") == "" {
		t.Errorf("found: %s", found)
	}
	if bySlug := w.find(alice, found, "W003"); !slices.Equal(idsOffered(bySlug), ids[4:5]) {
		t.Errorf("found by slug: %s", bySlug)
	}
	if none := w.find(alice, found, "<nothing>"); len(idsOffered(none)) != 0 || !strings.Contains(none, "0 of 205 workspaces match.") {
		t.Errorf("found nothing: %s", none)
	}
	many := w.find(alice, found, "number")
	if next := w.visit(alice, goTo(many, "Next page")); !strings.Contains(next, "204 of 205 workspaces match. This page has 101 to 200.") {
		t.Errorf("the second page of the matches: %s", next)
	}
	if all := w.visit(alice, goTo(many, "All workspaces")); !slices.Equal(idsOffered(all), ids[:100]) {
		t.Errorf("all: %s", all)
	}

	for name, page := range map[string]string{"the last page": third, "a search": found, "the first page": first} {
		_, shown := split(page)
		action, form := w.form(shown)
		form.Set("workspace", ids[204])
		response, page := w.submit(alice, action, form)
		to := w.led(response)
		if to == nil || to.Query().Get("code") == "" || to.Query().Get("state") != state {
			t.Errorf("%s: %d to %v: %s", name, response.StatusCode, to, page)
			continue
		}
		if to.Query().Has("find") || to.Query().Has("page") || strings.Contains(to.String(), "umber") {
			t.Errorf("%s: the client sees the search: %s", name, to)
		}
		granted := w.exchange(redeeming(client, to.Query().Get("code")))
		if _, text := w.api("GET", "/v1/whoami", granted.access, ""); !strings.Contains(text, `"slug":"w203"`) {
			t.Errorf("%s: the grant is for %s", name, text)
		}
	}
}

// TestConsentSearchIsProtected answers consent pages with another search than the shown one, and requests with odd searches.
func TestConsentSearchIsProtected(t *testing.T) {
	w, alice, client := stage(t)
	bob := w.person("bob")
	foreign := w.workspace(bob, "bobs")
	for n := range 100 {
		w.own(alice, fmt.Sprintf("w%03d", n), "Mine")
	}
	_, page := w.open(alice, asking(client, "files:read"))
	_, shown := split(page)
	action, form := w.form(shown)
	for _, changed := range []string{action + "&find=mine", action + "&page=2"} {
		if response, page := w.submit(alice, changed, form); w.led(response) != nil || !strings.Contains(page, "Answer again") {
			t.Errorf("%s: %d %s", changed, response.StatusCode, page)
		}
	}
	stolen := with(form, "workspace", foreign)
	if response, page := w.submit(alice, action, stolen); w.led(response) != nil || !strings.Contains(page, "Choose a workspace.") {
		t.Errorf("the workspace of another person: %d %s", response.StatusCode, page)
	}
	for _, odd := range []string{"page=0", "page=-3", "page=x", "page=99999999999999999999", "page=99", "find=" + strings.Repeat("%f0%9f%8e%a8", 400), "find=%ff", "find=a&find=mine", "%66ind=mine"} {
		page := w.visit(alice, "/oauth/authorize?"+asking(client, "files:read").Encode()+"&"+odd)
		if search, _ := split(page); search == "" || strings.Contains(search, `type="hidden" name="find"`) || strings.Contains(search, `type="hidden" name="page"`) {
			t.Errorf("%s: %s", odd, page)
		}
	}
	// A request that is as long as a request may be can be searched, too.
	long := asking(client, "files:read")
	long.Set("state", strings.Repeat("s", 6<<10-len(long.Encode())+len(url.QueryEscape(state))))
	if len(long.Encode()) != 6<<10 {
		t.Fatal(len(long.Encode()))
	}
	_, page = w.open(alice, long)
	if found := w.find(alice, page, "acme"); len(idsOffered(found)) != 1 {
		t.Errorf("the search of a long request: %s", found)
	}
	if response, page := w.send("GET", "/oauth/authorize?"+asking(client, "files:read").Encode()+"&find=%zz", "", "Cookie", alice.cookie); response.StatusCode != 400 {
		t.Errorf("a malformed search: %d %s", response.StatusCode, page)
	}
	if account := w.visit(alice, "/account"); !strings.Contains(account, "Only the first 100 of your 101 workspaces are shown") {
		t.Errorf("the form for a limited key does not say that it lacks a workspace: %s", account)
	}
	// A person who must sign in first gets back to the page.
	response, _ := w.send("GET", "/oauth/authorize?"+asking(client, "files:read").Encode()+"&find=mine&page=2", "")
	if to := w.led(response); to == nil || !strings.HasSuffix(to.Query().Get("next"), "&find=mine&page=2") {
		t.Errorf("signed out: %v", to)
	}
}
