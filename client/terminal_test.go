package client_test

import (
	nethttp "net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/client"
)

// TestResizeDuringReconnect changes the size of a terminal when its second connection has named the old one and is not open yet.
func TestResizeDuringReconnect(t *testing.T) {
	opened, messages := make(chan *client.Terminal, 1), make(chan string, 1)
	var connections atomic.Int32
	server := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		isFirst := connections.Add(1) == 1
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.CloseNow()
		if !isFirst {
			if got := r.URL.Query().Get("columns"); got != "80" {
				t.Errorf("the second connection is of %s columns", got)
			}
			if err := (<-opened).Resize(71, 31); err != nil {
				t.Error(err)
			}
		}
		if err := conn.Write(r.Context(), websocket.MessageText, []byte(`{"terminal":{"id":"t","position":0}}`)); err != nil {
			t.Error(err)
		}
		if isFirst {
			return // it breaks
		}
		_, message, err := conn.Read(r.Context())
		if err != nil {
			t.Error(err)
		}
		messages <- string(message)
		_ = conn.Write(r.Context(), websocket.MessageText, []byte(`{"exit":0}`))
	}))
	defer server.Close()
	c, err := client.New(server.URL, "atl_key")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	connected := make(chan struct{}, 1)
	terminal, err := c.OpenTerminal(t.Context(), "acme", client.TerminalOptions{Notify: func(err error) {
		if err == nil {
			connected <- struct{}{}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	opened <- terminal
	<-connected
	if _, err := terminal.Write([]byte("x")); err != nil {
		t.Log(err) // the server has ended the terminal
	}
	if got := <-messages; got != `{"resize":{"columns":71,"rows":31}}` {
		t.Errorf("the first message is %s", got)
	}
	if status, err := terminal.Wait(); status != 0 || err != nil {
		t.Errorf("%d, %v", status, err)
	}
}
