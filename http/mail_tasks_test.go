package http_test

import (
	"errors"
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
