package http_test

import (
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// TestConsentWhileWorkspacesAreAway consents for a person with two workspaces. Some of them cannot be reached.
func TestConsentWhileWorkspacesAreAway(t *testing.T) {
	const (
		other    = "ws_01j0000000000000000000000z"
		client   = "oc_01j00000000000000000000001"
		callback = "https://client.example/callback"
	)
	asking := "/oauth/authorize?" + url.Values{
		"response_type": {"code"}, "client_id": {client}, "redirect_uri": {callback}, "scope": {"files:read"},
		"code_challenge": {strings.Repeat("A", 43)}, "code_challenge_method": {"S256"},
	}.Encode()
	away := map[string]bool{}
	w := newFakeEntities()
	stub(w, func(entity.Command, *clientv1.DescribeClient) (proto.Message, error) {
		return &clientv1.Client{Id: client, Name: "Tester", RedirectUris: []string{callback}}, nil
	})
	stub(w, func(c entity.Command, _ *userv1.DescribeUser) (proto.Message, error) {
		return &userv1.User{Id: c.Identity, Email: "alice@example.com", Workspaces: map[string]int64{acme: 1, other: 2}}, nil
	})
	stub(w, func(c entity.Command, _ *workspacev1.DescribeWorkspace) (proto.Message, error) {
		if away[c.Identity] {
			return nil, errAway
		}
		return &workspacev1.Description{
			Workspace:    &workspacev1.Workspace{Id: c.Identity, Slug: "w", Name: "W", Status: workspacev1.Status_STATUS_ACTIVE},
			Capabilities: []string{"files:read"},
		}, nil
	})
	s, cookie := w.server(t), "atelier="+w.session(alice)
	const note = "Some of your workspaces are missing"
	show := func() (page string) {
		t.Helper()
		got := request(t, s, "GET", asking, "", "", "Cookie", cookie)
		if got.Code != 200 {
			t.Fatalf("%d %v %s", got.Code, got.Header(), got.Body)
		}
		page = got.Body.String()
		for _, id := range []string{acme, other} {
			if strings.Contains(page, id) == away[id] {
				t.Errorf("whether %s is offered: %v, and it is away: %v", id, !away[id], away[id])
			}
		}
		if strings.Contains(page, note) != (len(away) > 0) || strings.Contains(page, "You have no workspace") {
			t.Errorf("the page is %s", page)
		}
		return page
	}
	page := show()
	ticket := regexp.MustCompile(`name="ticket" value="([^"]*)"`).FindStringSubmatch(page)
	if ticket == nil {
		t.Fatalf("the page has no ticket: %s", page)
	}
	allow := func(id string) (status int, text string) {
		form := url.Values{"ticket": {html.UnescapeString(ticket[1])}, "decision": {"allow"}, "scope": {"files:read"}, "workspace": {id}}.Encode()
		got := request(t, s, "POST", asking, "", form, "Cookie", cookie, "Content-Type", "application/x-www-form-urlencoded")
		return got.Code, got.Body.String()
	}

	away[other] = true
	show()
	if status, text := allow(other); status != 503 || !strings.Contains(text, "does not answer at the moment, and nothing was allowed. Try again") {
		t.Errorf("a workspace that is away: %d %s", status, text)
	}
	if n := w.count(&grantv1.OpenGrant{}); n != 0 {
		t.Errorf("%d grants were opened", n)
	}
	if status, text := allow("ws_01j0000000000000000000000y"); status != 200 || !strings.Contains(text, "Choose a workspace.") || !strings.Contains(text, note) {
		t.Errorf("an unknown workspace: %d %s", status, text)
	}
	away[acme] = true
	show()
}
