package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
)

// noEntities knows nothing.
type noEntities struct{}

func (noEntities) Ask(context.Context, entity.Command) (proto.Message, error) {
	return nil, server.ErrNotFound
}
func (noEntities) Settle(context.Context, string, string) error { return nil }

// A launch without a credential leads a document request through sign-in, back to the same launch, and refuses all others.
func TestRefuseLaunch(t *testing.T) {
	s, err := server.New(server.Options{Asker: noEntities{}, Secret: make([]byte, 32), Hosts: []string{"example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	const path = "/v1/ws/{workspaceSlug}/apps/{slug}/launch"
	denied := func(*server.Call) error { return server.ErrForbidden }
	s.Mount([]server.Route{
		{Method: "GET", Path: path, Scope: server.ScopeKey, Handler: denied, Refuse: api.RefuseLaunch},
		{Method: "GET", Path: "/denied", Scope: server.ScopePublic, Handler: denied, Refuse: api.RefuseLaunch},
	}, nil)
	const launch = "/v1/ws/acme/apps/notes/launch?host=notes--acme.apps.test&path=%2Fa%3Fb%3D1"
	document := map[string]string{"Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
	for name, of := range map[string]struct {
		target  string
		headers map[string]string
		status  int
	}{
		"a document":                      {launch, document, 303},
		"an older browser":                {launch, map[string]string{"Accept": "text/html,*/*;q=0.8"}, 303},
		"a document, a stale cookie":      {launch, map[string]string{"Accept": "text/html", "Cookie": "atelier=old"}, 303},
		"a frame":                         {launch, map[string]string{"Sec-Fetch-Dest": "iframe", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}, 401},
		"a script":                        {launch, map[string]string{"Sec-Fetch-Dest": "empty", "Sec-Fetch-Mode": "cors", "Accept": "text/html"}, 401},
		"an older script":                 {launch, map[string]string{"Accept": "text/html", "X-Requested-With": "XMLHttpRequest"}, 401},
		"a program":                       {launch, map[string]string{"Accept": "*/*"}, 401},
		"a document, with a wrong key":    {launch, map[string]string{"Accept": "text/html", "Authorization": "Bearer atlkey"}, 401},
		"a document, for a denied person": {"/denied", document, 403},
	} {
		r := httptest.NewRequest("GET", of.target, nil)
		for key, value := range of.headers {
			r.Header.Set(key, value)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != of.status {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, of.status)
		}
		if to := w.Header().Get("Location"); of.status == 303 && to != "/sign-in?next="+url.QueryEscape(launch) {
			t.Errorf("%s is redirected to %s", name, to)
		}
		if of.status == 401 && (w.Header().Get("Www-Authenticate") == "" || !strings.Contains(w.Body.String(), `"error":"unauthorized"`)) {
			t.Errorf("%s: %v %s", name, w.Header(), w.Body)
		}
		if w.Code == http.StatusSeeOther && w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: the redirect may be cached", name)
		}
	}
}
