// Package halfclosed is a client that closes its sending side after a request and waits for the response, as nc -N and many probes do.
package halfclosed

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// longest bounds an exchange.
const longest = 3 * time.Minute

// Send sends the text of a request to an address, closes the sending side, and returns the status and the body of the response.
func Send(t testing.TB, address, request string) (status int, body string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(longest))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("%.40q has no response: %v", request, err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("the response to %.40q is not complete: %v", request, err)
	}
	return response.StatusCode, string(text)
}
