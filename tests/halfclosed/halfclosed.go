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

// Open sends the text of a request to an address and closes the sending side. The connection is closed at the end of the test.
func Open(t testing.TB, address, request string) *net.TCPConn {
	t.Helper()
	dialed, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c := dialed.(*net.TCPConn)
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(longest))
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	return c
}

// Send sends the text of a request to an address, closes the sending side, and returns the status and the body of the response.
func Send(t testing.TB, address, request string) (status int, body string) {
	t.Helper()
	c := Open(t, address, request)
	defer c.Close()
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
