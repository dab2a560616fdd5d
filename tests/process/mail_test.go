package process

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/atelier-run/atelier/client"
)

// A mailServer receives messages over SMTP (RFC 5321).
type mailServer struct {
	address  string
	messages chan string

	mu sync.Mutex
	// refusals are the replies to RCPT by address, and attempts the number of RCPT. If quotes is not empty, it is the reply to every
	// message, and has the message behind it.
	refusals map[string]string
	attempts map[string]int
	quotes   string
}

func startMailServer(t *testing.T) *mailServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &mailServer{
		address: listener.Addr().String(), messages: make(chan string, 16), refusals: map[string]string{}, attempts: map[string]int{},
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer connection.Close()
				s.receive(connection)
			})
		}
	})
	t.Cleanup(func() { listener.Close(); open.Wait() })
	return s
}

// settings are the settings of a node that sends mail by the server.
func (s *mailServer) settings() []string {
	return []string{
		"--smtp-address=" + s.address, "--smtp-tls=none", "--smtp-from=Atelier <atelier@example.org>", "--public-url=https://atelier.example.org",
	}
}

// refuse makes the server answer RCPT of an address with a reply; with an empty one, it accepts the address.
func (s *mailServer) refuse(address, reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusals[address] = reply
}

// quote makes the server answer every message with a reply that quotes the message; with an empty one, it accepts messages.
func (s *mailServer) quote(reply string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quotes = reply
}

func (s *mailServer) attemptsFor(address string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[address]
}

// recipient returns the reply to RCPT.
func (s *mailServer) recipient(line string) string {
	address := strings.TrimSuffix(strings.TrimPrefix(line, "RCPT TO:<"), ">")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[address]++
	return cmp.Or(s.refusals[address], "250 ok")
}

// take returns the reply to a message.
func (s *mailServer) take(message string) string {
	s.mu.Lock()
	quotes := s.quotes
	s.mu.Unlock()
	if quotes == "" {
		s.messages <- message
		return "250 accepted"
	}
	text, _ := io.ReadAll(quotedprintable.NewReader(strings.NewReader(message)))
	return quotes + " refused: " + strings.Join(strings.Fields(string(text)), " ")
}

func (s *mailServer) receive(connection io.ReadWriter) {
	fmt.Fprint(connection, "220 ready\r\n")
	var message strings.Builder
	inData := false
	for lines := bufio.NewScanner(connection); lines.Scan(); {
		line := lines.Text()
		switch {
		case inData && line == ".":
			inData = false
			fmt.Fprint(connection, s.take(message.String())+"\r\n")
		case inData:
			fmt.Fprintf(&message, "%s\r\n", line)
		case line == "DATA":
			inData = true
			fmt.Fprint(connection, "354 go on\r\n")
		case strings.HasPrefix(line, "EHLO "):
			fmt.Fprint(connection, "250-here\r\n250 ENHANCEDSTATUSCODES\r\n")
		case strings.HasPrefix(line, "RCPT "):
			fmt.Fprint(connection, s.recipient(line)+"\r\n")
		case line == "QUIT":
			fmt.Fprint(connection, "221 bye\r\n")
			return
		default:
			fmt.Fprint(connection, "250 ok\r\n")
		}
	}
}

// nextMessage waits for a message.
func (s *mailServer) nextMessage(t *testing.T) string {
	t.Helper()
	select {
	case message := <-s.messages:
		return message
	case <-time.After(patience):
		t.Fatal("no message has arrived")
		return ""
	}
}

// TestInvitationIsMailed verifies that an invitation is mailed to the invited address, with a link below the public URL,
// and that the link is not logged.
func TestInvitationIsMailed(t *testing.T) {
	post := startMailServer(t)
	n := start(t, filepath.Join(t.TempDir(), "data"), post.settings()...)
	_, key := newPerson(t, n, "ada@example.org")
	newWorkspace(t, newClient(n.address, key))
	c, err := api.New(n.address, key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Invite(t.Context(), "factory", api.NewInvitation{Email: "bob@example.org"}); err != nil {
		t.Fatal(err)
	}
	content := post.nextMessage(t)
	message, err := mail.ReadMessage(strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if to, from := message.Header.Get("To"), message.Header.Get("From"); !strings.Contains(to, "bob@example.org") || !strings.Contains(from, "atelier@example.org") {
		t.Errorf("the message is from %s to %s", from, to)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(message.Body))
	link := regexp.MustCompile(`https://atelier\.example\.org/invitations/\S+`).Find(text)
	if err != nil || link == nil {
		t.Errorf("the message has no link: %s, %v", text, err)
	}
	if strings.Contains(n.logs.String(), "/invitations/") {
		t.Error("the link is in the log")
	}
}

// TestRefusedInvitation invites addresses that the mail server refuses, for good and for a while, and kills the node in between.
// The log has no text of the mail server, which may quote the link.
func TestRefusedInvitation(t *testing.T) {
	post := startMailServer(t)
	dir := filepath.Join(t.TempDir(), "data")
	n := start(t, dir, post.settings()...)
	_, key := newPerson(t, n, "ada@example.org")
	newWorkspace(t, newClient(n.address, key))
	open := func() *api.Client {
		t.Helper()
		c, err := api.New(n.address, key)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := open()
	invite := func(address string) {
		t.Helper()
		if _, err := c.Invite(t.Context(), "factory", api.NewInvitation{Email: address}); err != nil {
			t.Fatal(err)
		}
	}
	awaitState := func(address, want string) {
		t.Helper()
		eventually(t, address+" is "+want, func() bool {
			for one, err := range c.InvitationDeliveries("factory").All(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if one.Email == address {
					return strings.TrimSpace(one.State+" "+one.Reply) == want
				}
			}
			return false
		})
	}
	post.refuse("bob@example.org", "550 5.1.1 no such user")
	post.refuse("dan@example.org", "450 4.2.0 greylisted")
	invite("bob@example.org")
	invite("dan@example.org")
	awaitState("bob@example.org", "refused 550 5.1.1")
	eventually(t, "an attempt to mail dan", func() bool { return post.attemptsFor("dan@example.org") > 0 })
	awaitState("dan@example.org", "sending")

	n.kill()
	n = start(t, dir, post.settings()...)
	c = open()
	awaitState("bob@example.org", "refused 550 5.1.1")
	post.refuse("dan@example.org", "")
	awaitState("dan@example.org", "sent")
	if message := post.nextMessage(t); !strings.Contains(message, "dan@example.org") {
		t.Errorf("the message is not for dan: %s", message)
	}
	if got := post.attemptsFor("bob@example.org"); got != 1 {
		t.Errorf("%d attempts to mail bob", got)
	}
	post.refuse("bob@example.org", "")
	invite("bob@example.org")
	awaitState("bob@example.org", "sent")

	awaitLog := func(want string) {
		t.Helper()
		eventually(t, "the log has "+want, func() bool { return strings.Contains(n.logs.String(), want) })
		if said := n.logs.String(); strings.Contains(said, "/invitations/") || strings.Contains(said, "greylisted") {
			t.Errorf("the log has the text of the mail server: %s", said)
		}
	}
	post.quote("451 4.7.1")
	invite("eve@example.org")
	awaitLog("closing SMTP DATA writer")
	post.quote("550 5.7.1")
	awaitState("eve@example.org", "refused 550 5.7.1")
	awaitLog("the mail server refused it for good")
}
