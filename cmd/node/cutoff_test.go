package node

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"testing"
)

// TestStopNamesCutOffRequests stops a node while a client sends the body of a request. The error names the request.
func TestStopNamesCutOffRequests(t *testing.T) {
	n, err := Start(t.Context(), Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go n.Server.Serve(listener)
	client, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := io.WriteString(client, "POST /oauth/token HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
		"Content-Length: 100\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(client).ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q, %v, want 100: the operation reads the body", line, err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	err = n.Stop(ended)
	if err == nil || !strings.Contains(err.Error(), "cut off at the drain deadline: POST /oauth/token") {
		t.Errorf("the error is %v, want the name of the request", err)
	}
}
