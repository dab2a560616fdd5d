package http_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func (s *site) idOf(name string) string {
	s.Helper()
	found, err := s.node.Router.Ask(s.Context(), entity.Command{
		Kind: entity.KindEmail, Identity: name + "@example.com", Principal: entity.Platform(), Message: &emailv1.ResolveEmail{},
	})
	if err != nil {
		s.Fatal(err)
	}
	return found.(*emailv1.Email).GetUserId()
}

func TestNewcomerAccepts(t *testing.T) {
	s := newSite(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	link := s.invite(key, "acme", "bob@example.com")
	b := s.browser()
	b.get(link).expectPage(200, "Join The acme people", "alice (alice@example.com)", "editor", "bob@example.com", `<label for="name">`)
	b.post(link, "name", "Bob\x07").expectPage(400, "control character", `aria-invalid="true"`)
	to := b.post(link, "name", "Bob Builder")
	if !strings.HasPrefix(to.to, "/set-password?token=") || to.StatusCode != 303 {
		t.Fatalf("%d to %q: %s", to.StatusCode, to.to, to.body())
	}
	// After losing the page, the invited person can return by the link for an hour, until the first sign-in.
	s.browser().get(link).expectPage(200, "Set your password")
	again := s.browser().post(link)
	if !strings.HasPrefix(again.to, "/set-password?token=") || again.to == to.to {
		t.Fatalf("%d to %q: %s", again.StatusCode, again.to, again.body())
	}
	b.get(to.to).expectPage(403)
	_, token, _ := strings.Cut(again.to, "token=")
	b.get(again.to).expectPage(200, "bob@example.com")
	b.post("/set-password", "token", token, "password", goodPassword, "again", goodPassword).expectRedirect("/account?done=password")
	b.get("/account").expectPage(200, "Bob Builder", "bob@example.com")
	s.browser().get(link).expectPage(409, "This invitation was already accepted")
	s.browser().post(link).expectPage(409)

	members := request(t, s.node.Server, "GET", "/v1/ws/acme/members", key, "")
	expect(t, members, 200, `"email":"bob@example.com"`)
	expect(t, members, 200, `"role":"editor"`)
	cookie := b.client.Jar.Cookies(b.get("/account").Request.URL)[0]
	expect(t, request(t, s.node.Server, "GET", "/v1/whoami", "", "", "Cookie", cookie.String()), 200, `"slug":"acme"`)
}

func TestInvitationLinkSetsThePasswordForAnHour(t *testing.T) {
	s := newSite(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	link := s.invite(key, "acme", "bob@example.com")
	s.browser().post(link, "name", "Bob")
	s.clock.advance(time.Hour)
	s.browser().get(link).expectPage(200, "Set your password")
	s.clock.advance(time.Millisecond)
	s.browser().get(link).expectPage(409, "This invitation was already accepted")
	s.browser().post(link).expectPage(409)
}

// TestInvitationLinkAfterTheClockWasAhead sets the clock back after an invitation was accepted, and before an account accepts that was made earlier.
func TestInvitationLinkAfterTheClockWasAhead(t *testing.T) {
	const ahead = 24 * time.Hour
	s := newSite(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	toBob, toCarol := s.invite(key, "acme", "bob@example.com"), s.invite(key, "acme", "carol@example.com")
	s.clock.advance(ahead)
	s.browser().post(toBob, "name", "Bob")
	s.browser().get(toBob).expectPage(200, "Set your password")
	var made struct{ UserID string }
	s.operator("/admin/users", `{"email":"carol@example.com","keyless":true}`, &made)
	s.clock.advance(-ahead)
	parts := strings.Split(strings.TrimPrefix(toCarol, "/invitations/"), ".")
	if _, err := s.node.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindWorkspace, Identity: "ws_" + parts[0], Principal: entity.Platform(),
		Message: &workspacev1.AcceptInvitation{InvitationId: "inv_" + parts[1], Person: &workspacev1.Person{
			UserId: made.UserID, Email: "carol@example.com",
		}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{toBob, toCarol} {
		s.browser().get(link).expectPage(409, "This invitation was already accepted")
		s.browser().post(link).expectPage(409)
	}
}

// The link does not open an account that it did not create, even if the account has no password and accepted a moment ago.
func TestInvitationLinkOpensNoExistingAccount(t *testing.T) {
	s := newSite(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	for name, test := range map[string]struct {
		made string
		wait time.Duration
		want int
	}{
		"bob":   {`"keyless":false`, 0, 409},
		"carol": {`"keyless":true`, time.Minute + time.Millisecond, 409},
		"dave":  {`"keyless":true`, time.Minute, 200}, // like an account that the link created
	} {
		link := s.invite(key, "acme", name+"@example.com")
		var made struct{ UserID string }
		s.operator("/admin/users", `{"email":"`+name+`@example.com",`+test.made+`}`, &made)
		s.clock.advance(test.wait)
		parts := strings.Split(strings.TrimPrefix(link, "/invitations/"), ".")
		if _, err := s.node.Router.Ask(t.Context(), entity.Command{
			Kind: entity.KindWorkspace, Identity: "ws_" + parts[0], Principal: entity.Platform(),
			Message: &workspacev1.AcceptInvitation{InvitationId: "inv_" + parts[1], Person: &workspacev1.Person{
				UserId: made.UserID, Email: name + "@example.com",
			}},
		}); err != nil {
			t.Fatal(err)
		}
		s.browser().get(link).expectPage(test.want)
		if to := s.browser().post(link).to; (to != "") != (test.want == 200) {
			t.Errorf("%s: the link leads to %q", name, to)
		}
	}
}

// The owner of the invited address accepts by signing in; no other person can accept.
func TestPersonAccepts(t *testing.T) {
	s := newSite(t)
	key, alice := s.signUp("alice")
	_, bob := s.signUp("bob")
	s.workspace(key, "acme")
	link := s.invite(key, "acme", "Bob@Example.com")
	toSignIn := "/sign-in?next=" + strings.ReplaceAll(link, "/", "%2F")

	out := s.browser()
	out.get(link).expectPage(200, "Sign in to accept", toSignIn).expectNot(t, "Your name")
	out.post(link).expectRedirect(toSignIn)
	alice.get(link).expectPage(200, "You are signed in as alice@example.com").expectNot(t, "Accept the invitation")
	alice.post(link).expectPage(200, "You are signed in as alice@example.com")
	if members := request(t, s.node.Server, "GET", "/v1/ws/acme/members", key, ""); strings.Contains(members.Body.String(), "bob@") {
		t.Errorf("bob is a member: %s", members.Body)
	}

	bob.get(link).expectPage(200, "Accept the invitation")
	bob.post(link).expectRedirect("/account?done=joined")
	bob.get("/account?done=joined").expectPage(200, "You are now a member of the workspace.")
	bob.post(link).expectPage(409, "This invitation was already accepted")
	expect(t, request(t, s.node.Server, "GET", "/v1/ws/acme/members", key, ""), 200, `"email":"bob@example.com"`)
}

func TestInvitationsThatCannotBeAccepted(t *testing.T) {
	s := newSite(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	b := s.browser()
	refused := func(link string, status int, title string) {
		t.Helper()
		b.get(link).expectPage(status, title)
		b.post(link, "name", "Bob").expectPage(status, title)
	}
	replaced := s.invite(key, "acme", "bob@example.com")
	link := s.invite(key, "acme", "bob@example.com")
	refused(replaced, 403, "This link is no longer valid")
	for _, wrong := range []string{
		link[:len(link)-1], link + "a", strings.Replace(link, ".", "_", 1), "/invitations/x",
		link[:len(link)-8] + "aaaaaaaa", strings.Replace(link, link[len("/invitations/"):][:26], "01j0000000000000000000000a", 1),
		strings.Replace(link, link[len("/invitations/")+27:][:26], "01j0000000000000000000000a", 1),
	} {
		refused(wrong, 404, "Page not found")
	}
	s.clock.advance(7*24*time.Hour - time.Millisecond)
	b.get(link).expectPage(200)
	s.clock.advance(time.Millisecond)
	refused(link, 409, "This invitation has expired")

	revoked := s.invite(key, "acme", "carol@example.com")
	var list struct{ Items []struct{ ID, Email string } }
	if err := json.Unmarshal(request(t, s.node.Server, "GET", "/v1/ws/acme/invites", key, "").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	for _, i := range list.Items {
		if i.Email == "carol@example.com" {
			expect(t, request(t, s.node.Server, "DELETE", "/v1/ws/acme/invites/"+i.ID, key, ""), 200, "")
		}
	}
	refused(revoked, 409, "This invitation was revoked")

	suspended := s.invite(key, "acme", "dave@example.com")
	expect(t, request(t, s.node.Server, "PUT", "/v1/ws/acme/admin/suspension", key, `{"suspended":true}`), 200, "")
	refused(suspended, 403, "The workspace is suspended")
	if id := s.idOf("dave"); id != "" {
		t.Errorf("a refused invitation made %s", id)
	}
}

// fail makes Send return err from now on; nil: Send succeeds.
func (p *mailbox) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = err
}

func (p *mailbox) sent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.messages)
}

// mailbox collects sent mail.
type mailbox struct {
	mu       sync.Mutex
	messages []string
	fails    error
	// failsFor are the errors of the mails to an address.
	failsFor map[string]error
	// attempts are the attempts by address.
	attempts map[string]int
}

func (p *mailbox) Send(ctx context.Context, to, subject, text string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("without a deadline")
	}
	if p.attempts == nil {
		p.attempts = map[string]int{}
	}
	p.attempts[to]++
	if err := cmp.Or(p.failsFor[to], p.fails); err != nil {
		return err
	}
	p.messages = append(p.messages, to+"\n"+subject+"\n"+text)
	return nil
}

func TestInvitationsAreMailed(t *testing.T) {
	mail := &mailbox{}
	s := newSite(t, func(o *http.Options) { o.Mail = mail })
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	invite := func(address string) (link string) {
		answer := request(t, s.node.Server, "POST", "/v1/ws/acme/invites", key, `{"email":"`+address+`"}`)
		expect(t, answer, 201, "")
		s.tasksDone()
		return answer.Header().Get("Link")
	}
	if link := invite("bob@example.com"); link != "" || len(mail.messages) != 1 {
		t.Fatalf("link %q, mail %q", link, mail.messages)
	}
	message := mail.messages[0]
	_, rest, ok := strings.Cut(message, s.live.URL)
	path, _, _ := strings.Cut(rest, "\n")
	if !ok || !strings.HasPrefix(message, "bob@example.com\nInvitation to The acme people\n") || !strings.Contains(message, "alice (alice@example.com)") {
		t.Fatalf("mail: %s", message)
	}
	s.browser().get(path).expectPage(200, "bob@example.com")
}

// Renewing an invitation repeatedly sends few mails, and does not prevent others from inviting the same address.
func TestMailIsBounded(t *testing.T) {
	mail := &mailbox{}
	s := newSite(t, func(o *http.Options) { o.Mail = mail })
	alice, _ := s.signUp("alice")
	carol, _ := s.signUp("carol")
	s.workspace(alice, "acme")
	s.workspace(carol, "other")
	s.node.Server.SeparateMailLimits("bob@example.com", s.idOf("alice"), s.idOf("carol"))
	invite := func(key, slug string, status int) {
		t.Helper()
		expect(t, request(t, s.node.Server, "POST", "/v1/ws/"+slug+"/invites", key, `{"email":"bob@example.com"}`), status, "")
		s.tasksDone()
	}
	invite(alice, "acme", 201)
	for range 4 {
		invite(alice, "acme", 200)
	}
	invite(alice, "acme", 429)
	for range 10 {
		invite(alice, "other", 404) // a refused invitation does not count
	}
	invite(carol, "other", 201)
	s.clock.advance(10 * time.Minute)
	invite(alice, "acme", 200)
	invite(alice, "acme", 429)
	if len(mail.messages) != 7 {
		t.Errorf("%d messages were sent", len(mail.messages))
	}
}

// A mail is sent even if the client disconnects while the mail server is waiting.
func TestMailIsSentAfterTheClientHasLeft(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	mail := lateMail{left: make(chan struct{}), sent: make(chan error, 1)}
	s := newSite(t, func(o *http.Options) { o.Mail = mail })
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	r := httptest.NewRequestWithContext(ctx, "POST", "/v1/ws/acme/invites", strings.NewReader(`{"email":"bob@example.com"}`))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.node.Server.ServeHTTP(w, r)
	if link := w.Header().Get("Link"); w.Code != 201 || link != "" {
		t.Errorf("%d, link %q: %s", w.Code, link, w.Body)
	}
	leave()
	close(mail.left)
	if err := <-mail.sent; err != nil {
		t.Errorf("the mail ended with its client: %v", err)
	}
	s.tasksDone()
}

// lateMail sends a mail once the client has left.
type lateMail struct {
	left chan struct{}
	sent chan error
}

func (m lateMail) Send(ctx context.Context, _, _, _ string) error {
	<-m.left
	m.sent <- ctx.Err()
	return ctx.Err()
}

// The links that renewals have replaced say so; a wrong link says nothing.
func TestReplacedInvitationLink(t *testing.T) {
	s := newSite(t)
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	var links []string
	for range 12 {
		links = append(links, s.invite(key, "acme", "bob@example.com"))
	}
	for _, link := range links[1:11] {
		s.browser().get(link).expectPage(403, "This link is no longer valid", "replaced when the invitation was renewed", "alice (alice@example.com)")
	}
	s.browser().post(links[10], "name", "Bob").expectPage(403, "replaced when the invitation was renewed")
	s.browser().get(links[0]).expectPage(404) // only the last ones are remembered
	s.browser().get(links[11][:len(links[11])-4] + "aaaa").expectPage(404)
	s.browser().get(links[11]).expectPage(200, "Join")
}
