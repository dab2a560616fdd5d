package mail_test

import (
	"context"
	"errors"
	"io"
	"mime"
	"mime/quotedprintable"
	netmail "net/mail"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/mail"
)

const link = "https://atelier.example.com/invitations/01j0000000000000000000000w.01j0000000000000000000000i.abcdefghijklmnopqrstuvwxyz234567abcdefgh"

func (s *server) options(tls string) mail.Options {
	return mail.Options{
		Address: s.listener.Addr().String(), From: "Atelier <atelier@example.com>", TLS: tls, Roots: s.roots, Timeout: 3 * time.Minute,
	}
}

func sender(t *testing.T, o mail.Options) *mail.Sender {
	t.Helper()
	s, err := mail.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSend(t *testing.T) {
	s := serve(t, false, func(s *server) { s.starttls, s.password = true, "secret" })
	o := s.options(mail.StartTLS)
	o.User, o.Password = "atelier", "secret"
	const subject = "Einladung für Ürsula zu „Acme“"
	if err := sender(t, o).Send(t.Context(), "ursula@example.com", subject, "Hello,\n\n"+link+"\n"); err != nil {
		t.Fatal(err)
	}
	if len(s.letters()) != 1 {
		t.Fatalf("%d messages came", len(s.letters()))
	}
	got := s.letters()[0]
	if !got.private || !strings.Contains(got.from, "<atelier@example.com>") || !strings.Contains(got.to, "<ursula@example.com>") {
		t.Errorf("envelope: %+v", got)
	}
	message, err := netmail.ReadMessage(strings.NewReader(got.text))
	if err != nil {
		t.Fatal(err)
	}
	head, err := new(mime.WordDecoder).DecodeHeader(message.Header.Get("Subject"))
	if err != nil || head != subject {
		t.Errorf("subject %q, %v", head, err)
	}
	if message.Header.Get("Auto-Submitted") != "auto-generated" || message.Header.Get("Message-Id") == "" || message.Header.Get("Date") == "" {
		t.Errorf("head: %v", message.Header)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(message.Body))
	if err != nil || !strings.Contains(string(text), link) {
		t.Errorf("text %q, %v", text, err)
	}
}

// TestSubjectsAreNotDecoded sends a subject with a name that looks like the encoded form of another name.
func TestSubjectsAreNotDecoded(t *testing.T) {
	s := serve(t, false, func(*server) {})
	for n, name := range []string{"=?utf-8?q?Ada_invites_you?=", "=?=?utf-8?b?eA==?=", "é =?utf-8?q?x?=", "=\u2060?utf-8?q?x?=", "\u202e=\u2066?utf-8?q?x?="} {
		if err := sender(t, s.options(mail.NoTLS)).Send(t.Context(), "ursula@example.com", "You are invited to "+name, "Hello"); err != nil {
			t.Fatal(err)
		}
		message, err := netmail.ReadMessage(strings.NewReader(s.letters()[n].text))
		if err != nil {
			t.Fatal(err)
		}
		head, err := new(mime.WordDecoder).DecodeHeader(message.Header.Get("Subject"))
		invisible := strings.NewReplacer("\u2060", "", "\u202e", "", "\u2066", "")
		if err != nil || strings.ContainsAny(head, "\u202e\u2066") || invisible.Replace(head) != "You are invited to "+invisible.Replace(name) {
			t.Errorf("%q became the subject %q, %v", name, head, err)
		}
	}
}

func TestImplicitTLS(t *testing.T) {
	s := serve(t, true, func(*server) {})
	if err := sender(t, s.options(mail.ImplicitTLS)).Send(t.Context(), "ursula@example.com", "a", "b"); err != nil || len(s.letters()) != 1 {
		t.Errorf("%v, %d messages came", err, len(s.letters()))
	}
}

func TestNoTLS(t *testing.T) {
	s := serve(t, false, func(*server) {})
	if err := sender(t, s.options(mail.NoTLS)).Send(t.Context(), "ursula@example.com", "a", "b"); err != nil || len(s.letters()) != 1 {
		t.Errorf("%v, %d messages came", err, len(s.letters()))
	}
}

// TestServerLeaves: a message that was accepted is not sent again.
func TestServerLeaves(t *testing.T) {
	s := serve(t, false, func(s *server) { s.leaves = true })
	if err := sender(t, s.options(mail.NoTLS)).Send(t.Context(), "ursula@example.com", "a", "b"); err != nil || len(s.letters()) != 1 {
		t.Errorf("%v, %d messages came", err, len(s.letters()))
	}
}

func TestSendFails(t *testing.T) {
	for name, test := range map[string]struct {
		server  func(*server)
		options func(*mail.Options)
		to      string
	}{
		"the server has no TLS":      {func(*server) {}, func(*mail.Options) {}, ""},
		"the certificate is unknown": {func(s *server) { s.starttls, s.roots = true, nil }, func(*mail.Options) {}, ""},
		"the password is wrong":      {func(s *server) { s.starttls, s.password = true, "right" }, func(o *mail.Options) { o.User, o.Password = "atelier", "wrong" }, ""},
		"the recipient is refused":   {func(s *server) { s.starttls, s.replies = true, map[string]string{"RCPT": "550 nobody"} }, func(*mail.Options) {}, ""},
		"the recipient is invalid":   {func(s *server) { s.starttls = true }, func(*mail.Options) {}, "a@example.com\r\nRCPT TO:<b@example.com>"},
		"the server is silent":       {func(s *server) { s.silent = true }, func(o *mail.Options) { o.Timeout = 50 * time.Millisecond }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, false, test.server)
			o := s.options(mail.StartTLS)
			test.options(&o)
			if test.to == "" {
				test.to = "ursula@example.com"
			}
			if err := sender(t, o).Send(t.Context(), test.to, "a", link); err == nil || len(s.letters()) != 0 {
				t.Errorf("%v, %d messages came", err, len(s.letters()))
			} else if strings.Contains(err.Error(), "invitations") || strings.Contains(err.Error(), "right") {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}

// TestRefusals sends messages to servers that refuse one command and quote the message, and expects an error that says whether another
// attempt has a chance, with the codes of the reply and without the reply's text.
func TestRefusals(t *testing.T) {
	for _, test := range []struct{ command, reply, want string }{
		{"RCPT", "550 5.1.1 nobody", "550 5.1.1"},
		{"RCPT", "551 gone away", "551"},
		{"RCPT", "450 4.2.0 greylisted", ""},
		{"RCPT", "452 the mailbox is full", ""},
		{"MAIL", "553 5.7.1 not your address", "553 5.7.1"},
		{"MAIL", "530 5.7.0 authenticate first", ""},
		{"MAIL", "451 4.3.0 later", ""},
		{"DATA", "554 5.5.1 no recipients", "554 5.5.1"},
		{"DATA", "451 later", ""},
		{".", "550 5.7.1 this link is on a list:", "550 5.7.1"},
		{".", "451 4.7.1 later", ""},
		{".", "354", ""},
		{"DATA", "not a reply", ""},
		{"", "554 no service for you", ""},
		{"", "not a reply", ""},
		{"EHLO", "502 no", ""},
		{"STARTTLS", "454 4.7.0 later", ""},
		{"AUTH", "334", ""},
		{"AUTH", "535 5.7.8 wrong", ""},
	} {
		t.Run(test.command+" "+test.reply, func(t *testing.T) {
			s := serve(t, false, func(s *server) {
				s.starttls, s.replies = true, map[string]string{test.command: test.reply + " " + link}
			})
			o := s.options(mail.StartTLS)
			if test.command == "AUTH" {
				o.User, o.Password = "atelier", "secret"
			}
			err := sender(t, o).Send(t.Context(), "ursula@example.com", "a", "b")
			if err == nil || len(s.letters()) != 0 {
				t.Fatalf("%v, %d messages came", err, len(s.letters()))
			}
			var refused *mail.Refusal
			if errors.As(err, &refused) != (test.want != "") || refused != nil && refused.Reply() != test.want {
				t.Errorf("the error is %#v, want a refusal with %q", err, test.want)
			}
			codes := regexp.MustCompile(`^[45]\d\d( [45]\.\d\.\d)?`).FindString(test.reply)
			if text := err.Error(); strings.Contains(text, "invitations") || test.command != "EHLO" && !strings.HasSuffix(text, codes) {
				t.Errorf("the error is %q, want the codes %q and no text of the server", text, codes)
			}
		})
	}
}

func TestSendEndsWithItsContext(t *testing.T) {
	s := serve(t, false, func(s *server) { s.silent = true })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	o := s.options(mail.StartTLS)
	o.Timeout = time.Hour
	if err := sender(t, o).Send(ctx, "ursula@example.com", "a", "b"); err == nil {
		t.Error("Send succeeded although the server is silent")
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []mail.Options{
		{}, {Address: "example.com", From: "a@example.com"}, {Address: "example.com:0", From: "a@example.com"},
		{Address: "example.com:smtp", From: "a@example.com"}, {Address: ":25", From: "a@example.com"},
		{Address: "example.com:25"}, {Address: "example.com:25", From: "nobody"},
		{Address: "example.com:25", From: "a@example.com", TLS: "maybe"},
	} {
		if _, err := mail.New(o); err == nil {
			t.Errorf("New accepts %+v", o)
		}
	}
}
