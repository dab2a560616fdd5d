package server_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/tests/halfclosed"
)

// noEntities are the entities of a server whose operations ask none.
type noEntities struct{}

func (noEntities) Ask(context.Context, entity.Command) (proto.Message, error) {
	return nil, entity.Errorf(entity.NotFound, "")
}

func (noEntities) Settle(context.Context, string, string) error { return nil }

// A client that shuts its sending side after the request, as nc -N and many probes do, gets the answer, and its change is made.
func TestClientThatSendsNoMore(t *testing.T) {
	s, err := server.New(server.Options{Asker: noEntities{}, Secret: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	run := server.Answer(http.StatusOK, server.Nothing, func(c *server.Call, _ server.None) (map[string]bool, error) {
		<-c.Request.Context().Done() // net/http has noticed
		return map[string]bool{"done": true}, c.Context.Err()
	})
	s.Mount([]server.Route{
		{Method: http.MethodGet, Path: "/thing", Scope: server.ScopePublic, Handler: run},
		{Method: http.MethodPost, Path: "/thing", Scope: server.ScopePublic, Handler: run},
	}, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-served
	})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		status, body := halfclosed.Send(t, l.Addr().String(), method+" /thing HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if status != http.StatusOK || body != `{"done":true}` {
			t.Errorf("%s: %d %s", method, status, body)
		}
	}
}
