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

// startMailServer starts a server that receives one message over SMTP (RFC 5321) and sends it to the channel.
func startMailServer(t *testing.T) (address string, messages <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	received := make(chan string, 1)
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		received <- receiveMessage(connection)
	}()
	return listener.Addr().String(), received
}

func receiveMessage(connection io.ReadWriter) string {
	fmt.Fprint(connection, "220 ready\r\n")
	var message strings.Builder
	inData := false
	for lines := bufio.NewScanner(connection); lines.Scan(); {
		line := lines.Text()
		switch {
		case inData && line == ".":
			inData = false
			fmt.Fprint(connection, "250 accepted\r\n")
		case inData:
			fmt.Fprintf(&message, "%s\r\n", line)
		case line == "DATA":
			inData = true
			fmt.Fprint(connection, "354 go on\r\n")
		case line == "QUIT":
			fmt.Fprint(connection, "221 bye\r\n")
			return message.String()
		default:
			fmt.Fprint(connection, "250 ok\r\n")
		}
	}
	return message.String()
}

// TestInvitationIsMailed verifies that an invitation is mailed to the invited address, with a link below the public URL,
// and that the link is not logged.
func TestInvitationIsMailed(t *testing.T) {
	post, messages := startMailServer(t)
	n := start(t, filepath.Join(t.TempDir(), "data"), "--smtp-address="+post, "--smtp-tls=none",
		"--smtp-from=Atelier <atelier@example.org>", "--public-url=https://atelier.example.org")
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
	var content string
	select {
	case content = <-messages:
	case <-time.After(patience):
		t.Fatal("no message has arrived")
	}
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
