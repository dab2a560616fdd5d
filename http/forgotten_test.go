package http_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// mailed returns the paths of all mailed links, after the requests in flight are processed.
func (s *site) mailed(p *mailbox) (links []string) {
	s.Helper()
	s.node.Server.WaitForResets()
	s.tasksDone()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, message := range p.messages {
		_, rest, found := strings.Cut(message, s.live.URL+"/set-password")
		if !found {
			s.Fatalf("no link: %s", message)
		}
		path, _, _ := strings.Cut(rest, "\n")
		links = append(links, "/set-password"+path)
	}
	return links
}

func TestForgottenPassword(t *testing.T) {
	mail := &mailbox{}
	s := newSite(t, func(o *http.Options) { o.Mail = mail })
	_, old := s.signUp("alice")
	b := s.browser()
	b.get("/sign-in").expectPage(200, `href="/sign-in/forgotten"`)
	b.post("/sign-in", "email", "alice@example.com", "password", "wrong").expectPage(403, `href="/sign-in/forgotten"`)
	b.get("/sign-in/forgotten").expectPage(200, `<label for="email">`)
	b.post("/sign-in/forgotten", "email", "Alice@Example.com").expectPage(200, "Check your mail", `role="status"`)
	links := s.mailed(mail)
	if len(links) != 1 || !strings.HasPrefix(mail.messages[0], "alice@example.com\nSet a new password\n") ||
		!strings.Contains(mail.messages[0], "before 16 January 2027, 08:00 UTC") {
		t.Fatalf("mail: %q", mail.messages)
	}
	old.get("/account").expectPage(200) // nothing has changed yet
	const better = "another way to the sea"
	_, token, _ := strings.Cut(links[0], "token=")
	b.get(links[0]).expectPage(200, "alice@example.com")
	b.post("/set-password", "token", token, "password", better, "again", better).expectRedirect("/account?done=password")
	old.get("/account").expectRedirect("/sign-in?next=%2Faccount")
	b.get(links[0]).expectPage(403, "This link is no longer valid", `href="/sign-in"`)
	s.browser().post("/sign-in", "email", "alice@example.com", "password", better).expectRedirect("/account")

	// A used link stays invalid: a further request mails a new link.
	b.post("/sign-in/forgotten", "email", "alice@example.com").expectPage(200)
	if links = s.mailed(mail); len(links) != 2 || links[1] == links[0] {
		t.Fatalf("links: %q", links)
	}
	b.get(links[0]).expectPage(403)
	s.clock.advance(24*time.Hour - time.Millisecond)
	b.get(links[1]).expectPage(200)
	s.clock.advance(time.Millisecond)
	b.get(links[1]).expectPage(403)
}

// The response has the same bytes for every email address; mail is sent only to accounts that are not disabled.
func TestForgottenResponsesAreIdentical(t *testing.T) {
	mail := &mailbox{}
	s := newSite(t, func(o *http.Options) { o.Mail = mail })
	s.signUp("alice")
	s.person("none") // has no password
	s.person("gone")
	s.change("gone", &userv1.Disable{})
	var first string
	for _, address := range []string{"alice@example.com", "nobody@example.com", "none@example.com", "gone@example.com", "no address", "", "a@b\xff"} {
		text := s.browser().post("/sign-in/forgotten", "email", address).expectPage(200).text
		if first == "" {
			first = text
		}
		if text != first {
			t.Errorf("%q has a different response: %s", address, text)
		}
	}
	var to []string
	s.mailed(mail)
	for _, message := range mail.messages {
		address, _, _ := strings.Cut(message, "\n")
		to = append(to, address)
	}
	if got := strings.Join(to, " "); got != "alice@example.com none@example.com" && got != "none@example.com alice@example.com" {
		t.Errorf("mail went to %s", got)
	}
}

func TestForgottenNeedsMail(t *testing.T) {
	s := newSite(t)
	s.signUp("alice")
	b := s.browser()
	b.get("/sign-in").expectPage(200).expectNot(t, "forgotten")
	b.get("/sign-in/forgotten").expectPage(404)
	b.post("/sign-in/forgotten", "email", "alice@example.com").expectPage(404)
	s.node.Server.WaitForResets()
}

// Repeated requests send an account few mails, do not make its link invalid soon, and do not affect other accounts.
func TestForgottenIsBounded(t *testing.T) {
	mail := &mailbox{}
	s := newSite(t, func(o *http.Options) {
		o.Mail, o.TrustedProxies = mail, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	s.signUp("alice")
	s.signUp("bob")
	s.node.Server.SeparateResetLimits(s.idOf("alice"), s.idOf("bob"))
	b, n := s.browser(), 0
	ask := func(name string) {
		t.Helper()
		n++
		b.headers["X-Forwarded-For"] = fmt.Sprintf("10.1.%d.%d", n>>8, n&255)
		b.post("/sign-in/forgotten", "email", name+"@example.com").expectPage(200, "Check your mail")
		s.node.Server.WaitForResets()
		s.tasksDone()
	}
	for range 50 {
		ask("alice")
	}
	links := s.mailed(mail)
	if len(links) != 3 || links[0] != links[2] {
		t.Fatalf("links: %q", links)
	}
	ask("bob")
	if got := s.mailed(mail); len(got) != 4 {
		t.Fatalf("bob got no mail: %q", got)
	}
	for range 5 { // every ten minutes the same link
		s.clock.advance(10 * time.Minute)
		ask("alice")
		ask("alice")
		b.get(links[0]).expectPage(200)
	}
	s.clock.advance(10 * time.Minute)
	ask("alice")
	if links = s.mailed(mail); len(links) != 10 || links[8] != links[0] || links[9] == links[0] {
		t.Fatalf("links: %q", links)
	}
	b.get(links[0]).expectPage(403)
	b.get(links[9]).expectPage(200)
}

// A mailed link replaces the link of an operator.
func TestForgottenReplacesOtherLinks(t *testing.T) {
	mail := &mailbox{}
	s := newSite(t, func(o *http.Options) { o.Mail = mail })
	s.signUp("alice")
	given := s.link("alice")
	s.browser().post("/sign-in/forgotten", "email", "alice@example.com").expectPage(200)
	links := s.mailed(mail)
	s.browser().get(given).expectPage(403)
	s.browser().get(links[0]).expectPage(200)
}

func TestForgottenIsLimitedByNetwork(t *testing.T) {
	s := newSite(t, func(o *http.Options) { o.Mail = &mailbox{} })
	b := s.browser()
	for i := range 10 {
		b.post("/sign-in/forgotten", "email", fmt.Sprintf("%d@example.com", i)).expectPage(200)
	}
	for _, address := range []string{"alice@example.com", ""} {
		if refused := b.post("/sign-in/forgotten", "email", address).expectPage(429, "Too many attempts"); refused.Header.Get("Retry-After") != "60" {
			t.Errorf("head: %v", refused.Header)
		}
	}
	s.clock.advance(time.Minute)
	b.post("/sign-in/forgotten", "email", "alice@example.com").expectPage(200)
}

const forgotAlice = "email=alice%40example.com"

// The response is sent before the account is looked up. Requests beyond the limit are dropped and get the same response.
func TestForgottenAnswersAtOnce(t *testing.T) {
	w, mail, known := newFakeEntities(), &mailbox{}, make(chan struct{})
	stub(w, func(entity.Command, *emailv1.ResolveEmail) (proto.Message, error) {
		<-known
		return &emailv1.Email{}, nil
	})
	s := w.server(t, func(o *http.Options) {
		o.Mail, o.TrustedProxies = mail, []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	})
	for i := range 40 {
		expect(t, request(t, s, "POST", "/sign-in/forgotten", "", forgotAlice, "Content-Type", "application/x-www-form-urlencoded",
			"X-Forwarded-For", fmt.Sprintf("10.0.0.%d", i)), 200, "Check your mail")
	}
	close(known)
	s.WaitForResets()
	if n := w.count(&emailv1.ResolveEmail{}); n != 32 || len(mail.messages) != 0 {
		t.Errorf("%d were looked up, mail %q", n, mail.messages)
	}
}

// Shutdown waits for password resets that continue after the response.
func TestForgottenDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFakeEntities()
		stub(w, func(entity.Command, *emailv1.ResolveEmail) (proto.Message, error) {
			<-time.After(3 * time.Second)
			return &emailv1.Email{}, nil
		})
		s := w.server(t, func(o *http.Options) { o.Mail = &mailbox{} })
		expect(t, request(t, s, "POST", "/sign-in/forgotten", "", forgotAlice, "Content-Type", "application/x-www-form-urlencoded"), 200, "")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if err := s.Shutdown(ctx); err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("ended with %v after %s", err, time.Since(began))
		}
	})
}

// Two concurrent requests, as from a double click, mail the same link twice.
func TestForgottenTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, kept := newFakeEntities(), &userv1.OneTimeLink{}
		var offered []*userv1.OneTimeLink
		stub(w, func(entity.Command, *emailv1.ResolveEmail) (proto.Message, error) {
			return &emailv1.Email{UserId: alice}, nil
		})
		stub(w, func(entity.Command, *userv1.DescribePassword) (proto.Message, error) {
			found := &userv1.Password{Link: kept}
			<-time.After(time.Second) // the second request has arrived by now
			return found, nil
		})
		stub(w, func(_ entity.Command, offer *userv1.OfferOneTimeLink) (proto.Message, error) {
			kept = offer.GetLink()
			offered = append(offered, kept)
			return &wirev1.Done{}, nil
		})
		s := w.server(t, func(o *http.Options) { o.Mail = &mailbox{} })
		for range 2 {
			expect(t, request(t, s, "POST", "/sign-in/forgotten", "", forgotAlice, "Content-Type", "application/x-www-form-urlencoded"), 200, "")
			<-time.After(time.Millisecond)
		}
		s.WaitForResets()
		if len(offered) != 2 || !bytes.Equal(offered[0].GetSecretSha256(), offered[1].GetSecretSha256()) ||
			offered[0].GetMailId() == offered[1].GetMailId() {
			t.Errorf("offered: %v", offered)
		}
	})
}

// A panic after the response ends only the reset in which it happens.
func TestForgottenSurvivesAPanic(t *testing.T) {
	w, said, tries := newFakeEntities(), &strings.Builder{}, 0
	stub(w, func(entity.Command, *emailv1.ResolveEmail) (proto.Message, error) {
		tries++
		panic("no answer today")
	})
	s := w.server(t, func(o *http.Options) { o.Mail, o.Log = &mailbox{}, slog.New(slog.NewTextHandler(said, nil)) })
	for n := range 2 {
		expect(t, request(t, s, "POST", "/sign-in/forgotten", "", forgotAlice, "Content-Type", "application/x-www-form-urlencoded"), 200, "")
		s.WaitForResets()
		if tries != n+1 || strings.Count(said.String(), "no answer today") != n+1 {
			t.Errorf("%d tries, the log says %q", tries, said)
		}
	}
}
