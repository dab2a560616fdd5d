package process

import (
	"bufio"
	"fmt"
	"io"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	api "github.com/atelier-run/atelier/client"
)

// postOffice takes one message over SMTP (RFC 5321) and hands it on.
func postOffice(t *testing.T) (address string, messages <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	taken := make(chan string, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		taken <- takeMessage(connection)
	}()
	return listener.Addr().String(), taken
}

func takeMessage(connection io.ReadWriter) string {
	fmt.Fprint(connection, "220 post\r\n")
	var message strings.Builder
	inside := false
	for lines := bufio.NewScanner(connection); lines.Scan(); {
		line := lines.Text()
		switch {
		case inside && line == ".":
			inside = false
			fmt.Fprint(connection, "250 taken\r\n")
		case inside:
			fmt.Fprintf(&message, "%s\r\n", line)
		case line == "DATA":
			inside = true
			fmt.Fprint(connection, "354 go on\r\n")
		case line == "QUIT":
			fmt.Fprint(connection, "221 bye\r\n")
			return message.String()
		default:
			fmt.Fprint(connection, "250 so be it\r\n")
		}
	}
	return message.String()
}

// With mail set, an invitation is sent to whom it is for, with a link below the public URL, and told to nobody else.
func TestInvitationIsMailed(t *testing.T) {
	post, messages := postOffice(t)
	n := start(t, filepath.Join(t.TempDir(), "data"), "--smtp-address="+post, "--smtp-tls=none",
		"--smtp-from=Atelier <atelier@example.org>", "--public-url=https://atelier.example.org")
	_, key := newPerson(t, n, "ada@example.org")
	newSpace(t, newClient(n.address, key))
	c, err := api.New(n.address, key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Invite(t.Context(), "factory", api.NewInvitation{Email: "bob@example.org"}); err != nil {
		t.Fatal(err)
	}
	var taken string
	select {
	case taken = <-messages:
	case <-time.After(patience):
		t.Fatal("no message comes")
	}
	message, err := mail.ReadMessage(strings.NewReader(taken))
	if err != nil {
		t.Fatal(err)
	}
	if to, from := message.Header.Get("To"), message.Header.Get("From"); !strings.Contains(to, "bob@example.org") || !strings.Contains(from, "atelier@example.org") {
		t.Errorf("from %s to %s", from, to)
	}
	text, err := io.ReadAll(quotedprintable.NewReader(message.Body))
	link := regexp.MustCompile(`https://atelier\.example\.org/invitations/\S+`).Find(text)
	if err != nil || link == nil {
		t.Errorf("%s, %v", text, err)
	}
	if strings.Contains(n.logs.String(), "/invitations/") {
		t.Error("the link is in the log")
	}
}
