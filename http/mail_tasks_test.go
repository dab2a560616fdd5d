package http_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/persistence"
)

// tasksDone waits until no task is open.
func (s *site) tasksDone() {
	s.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(longest)
	for s.openTasks() > 0 {
		select {
		case <-ticker.C:
		case <-deadline:
			s.Fatal("tasks remain open")
		}
	}
}

func (s *site) openTasks() (n int) {
	s.Helper()
	v, err := s.node.Journal.View()
	if err != nil {
		s.Fatal(err)
	}
	defer v.Close()
	for p := range s.node.Journal.Partitions() {
		for _, err := range v.Index(persistence.Partition(p), persistence.Query{Index: "task", Prefix: true}) {
			if err != nil {
				s.Fatal(err)
			}
			n++
		}
	}
	return n
}

func TestMailTasks(t *testing.T) {
	t.Run("a mail is retried until the server accepts it", func(t *testing.T) {
		mail := &mailbox{}
		mail.fail(errors.New("no such server"))
		s := newSite(t, func(o *http.Options) { o.Mail = mail })
		key, _ := s.signUp("alice")
		s.workspace(key, "acme")
		answer := request(t, s.node.Server, "POST", "/v1/ws/acme/invites", key, `{"email":"bob@example.com"}`)
		expect(t, answer, 201, "bob@example.com")
		if link := answer.Header().Get("Link"); link != "" || strings.Contains(answer.Body.String(), "/invitations/") {
			t.Errorf("the inviter got the link %q: %s", link, answer.Body)
		}
		if s.openTasks() != 1 {
			t.Errorf("%d tasks are open", s.openTasks())
		}
		mail.fail(nil)
		s.tasksDone()
		if sent := mail.sent(); len(sent) != 1 || !strings.HasPrefix(sent[0], "bob@example.com\nInvitation to ") {
			t.Errorf("mail: %q", sent)
		}
	})
	t.Run("a mail is given up after a day", func(t *testing.T) {
		mail := &mailbox{}
		mail.fail(errors.New("no such server"))
		s := newSite(t, func(o *http.Options) { o.Mail = mail })
		key, _ := s.signUp("alice")
		s.workspace(key, "acme")
		expect(t, request(t, s.node.Server, "POST", "/v1/ws/acme/invites", key, `{"email":"bob@example.com"}`), 201, "")
		s.clock.advance(24 * time.Hour)
		s.tasksDone()
		if sent := mail.sent(); len(sent) != 0 || !strings.Contains(s.said.String(), "gave up sending a mail") {
			t.Errorf("mail: %q", sent)
		}
	})
}

// refusedFor is the error of a mail that the mail server has refused for good, with the server's reply.
type refusedFor struct{ reply string }

func (r refusedFor) Error() string { return "the mail server said " + r.reply + " and more" }
func (r refusedFor) Reply() string { return r.reply }

// failFor makes the mails to one address fail, and to no other.
func (p *mailbox) failFor(address string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failsFor = map[string]error{address: err}
}

// attemptsFor returns the number of attempts to send mail to an address.
func (p *mailbox) attemptsFor(address string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attempts[address]
}

// TestRefusedMails sends invitations by a mail server that refuses some addresses for good.
func TestRefusedMails(t *testing.T) {
	mail := &mailbox{}
	s := newSite(t, func(o *http.Options) { o.Mail = mail })
	key, _ := s.signUp("alice")
	s.workspace(key, "acme")
	invite := func(address string, status int) {
		t.Helper()
		expect(t, request(t, s.node.Server, "POST", "/v1/ws/acme/invites", key, `{"email":"`+address+`"}`), status, address)
	}
	states := func() (text string) {
		t.Helper()
		var page struct {
			Items []struct {
				Email, State, Reply string
				EndedAt             int64
			}
		}
		answer := request(t, s.node.Server, "GET", "/v1/ws/acme/invite-deliveries", key, "")
		if err := json.Unmarshal(answer.Body.Bytes(), &page); err != nil || answer.Code != 200 {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
		for _, one := range page.Items {
			if (one.EndedAt != 0) != (one.State != "sending") {
				t.Errorf("%+v", one)
			}
			text += strings.TrimSpace(one.Email+" "+one.State+" "+one.Reply) + "\n"
		}
		return text
	}
	expectStates := func(want string) {
		t.Helper()
		if got := states(); got != want {
			t.Errorf("the mails are\n%s, want\n%s", got, want)
		}
	}

	mail.failFor("bob@example.com", refusedFor{"550 5.1.1"})
	invite("bob@example.com", 201)
	invite("carol@example.com", 201)
	s.tasksDone()
	expectStates("carol@example.com sent\nbob@example.com refused 550 5.1.1\n")
	if got := mail.attemptsFor("bob@example.com"); got != 1 {
		t.Errorf("%d attempts to mail bob", got)
	}
	if said := s.said.String(); !strings.Contains(said, "the mail server refused it for good") || !strings.Contains(said, "550 5.1.1") || strings.Contains(said, "and more") {
		t.Errorf("the log lacks the refusal, or has the text of the server: %s", said)
	}
	if metrics := request(t, s.node.Server, "GET", "/metrics", "", "").Body.String(); !strings.Contains(metrics, `atelier_mails_total{outcome="refused"} 1`) {
		t.Error("the metrics lack the refusal")
	}
	var list struct{ Items []map[string]json.RawMessage }
	answer := request(t, s.node.Server, "GET", "/v1/ws/acme/invites", key, "")
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil || len(list.Items) != 2 {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	for _, one := range list.Items { // a refusal is no field of the specification
		if names := slices.Sorted(maps.Keys(one)); !slices.Equal(names, []string{"email", "expiresAt", "id", "role"}) {
			t.Errorf("an invitation in the list has the fields %q", names)
		}
	}

	// Inviting again clears the refusal; a failure that passes is tried again.
	mail.failFor("bob@example.com", errors.New("450 4.2.0 later"))
	invite("bob@example.com", 200)
	expectStates("carol@example.com sent\nbob@example.com sending\n")
	mail.failFor("", nil)
	s.tasksDone()
	expectStates("carol@example.com sent\nbob@example.com sent\n")

	// An invitation that ends before its mail is sent.
	mail.failFor("dan@example.com", errors.New("450 4.2.0 later"))
	invite("dan@example.com", 201)
	var made struct{ Items []struct{ ID string } }
	if err := json.Unmarshal(request(t, s.node.Server, "GET", "/v1/ws/acme/invites?limit=1", key, "").Body.Bytes(), &made); err != nil {
		t.Fatal(err)
	}
	expect(t, request(t, s.node.Server, "DELETE", "/v1/ws/acme/invites/"+made.Items[0].ID, key, ""), 200, "revokedAt")
	if got := states(); !strings.HasPrefix(got, "dan@example.com given_up\n") {
		t.Errorf("the mails are\n%s", got)
	}
}

// TestRefusedMailOfAPassword sends the mail of a password by a mail server that refuses the address for good. The next request sends
// another mail.
func TestRefusedMailOfAPassword(t *testing.T) {
	mail := &mailbox{}
	s := newSite(t, func(o *http.Options) { o.Mail = mail })
	s.signUp("alice")
	mail.failFor("alice@example.com", refusedFor{"550"})
	b := s.browser()
	b.post("/sign-in/forgotten", "email", "alice@example.com").expectPage(200, "Check your mail")
	s.node.Server.WaitForResets()
	s.tasksDone()
	if got := mail.attemptsFor("alice@example.com"); got != 1 {
		t.Errorf("%d attempts to mail alice", got)
	}
	mail.failFor("", nil)
	b.post("/sign-in/forgotten", "email", "alice@example.com").expectPage(200, "Check your mail")
	s.node.Server.WaitForResets()
	s.tasksDone()
	if sent := mail.sent(); !strings.HasPrefix(sent[len(sent)-1], "alice@example.com\nSet a new password\n") {
		t.Errorf("mail: %q", sent)
	}
}
