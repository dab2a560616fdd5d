package process

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

// A scriptedAnswer is an answer of a scripted node to the request with this method and path.
type scriptedAnswer struct {
	request string
	status  int
	body    string
}

// newScriptedTenant returns a tenant of TestKillApps that removes its app on a node with prepared answers.
func newScriptedTenant(t *testing.T, slug, folder string, answers ...scriptedAnswer) *tenant {
	t.Helper()
	var requests, want []string
	for _, a := range answers {
		want = append(want, a.request)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path)
		if len(requests) > len(answers) {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(answers[len(requests)-1].status)
		fmt.Fprint(w, answers[len(requests)-1].body)
	}))
	s := &site{node: &node{address: server.URL}, restarted: make(chan struct{}), acknowledged: make(chan struct{}, 1)}
	close(s.restarted) // the tenant does not wait before it repeats a request
	p := newTenant(&appWorld{t: t, site: s}, 3)
	p.client = newClient(server.URL, "key")
	p.app = &model{id: "app_own", slug: slug, folder: folder, name: "app 20 of 3", runtimes: []runtime{{}}, keys: []string{"atlapp_1"}}
	p.next = &appRequest{method: http.MethodDelete, path: p.ownPath(p.app, ""), removes: true, revokes: true}
	t.Cleanup(func() {
		p.client.close()
		server.Close()
		if !slices.Equal(requests, want) {
			t.Errorf("the tenant has requested %q, want %q", requests, want)
		}
	})
	return p
}

// TestTenantWithoutAnswerOfRemoval gives a tenant each state that a restarted node can be in after a removal with a lost answer. The tenant
// repeats the removal only while the app in the path is certain to be its own: another tenant can register an app with the slug as soon as
// the removal is complete.
func TestTenantWithoutAnswerOfRemoval(t *testing.T) {
	const app, key = "/v1/ws/annex/apps/shared-2", "/v1/ws/annex/drive/own-3/key"
	const view = `{"app":{"id":%q,"slug":"shared-2","anchorPath":%q,"name":%q,"controls":{"makePrivate":%t}}}`
	read := func(id, folder, name string, isStable bool) scriptedAnswer {
		return scriptedAnswer{"GET " + app, http.StatusOK, fmt.Sprintf(view, id, folder, name, isStable)}
	}
	missing := scriptedAnswer{"GET " + app, http.StatusNotFound, `{"error":"not_found"}`}
	refused := scriptedAnswer{"GET /v1/whoami", http.StatusUnauthorized, `{"error":"unauthorized"}`}
	for _, test := range []struct {
		name    string
		steps   int
		answers []scriptedAnswer
	}{
		{"removed", 1, []scriptedAnswer{missing, refused}},
		{"slug of another app", 1, []scriptedAnswer{read("app_other", "own-1", "app 21 of 1", true), refused}},
		{"being removed", 2, []scriptedAnswer{read("app_own", "own-3", "app 20 of 3", false), missing, refused}},
		{"not removed", 2, []scriptedAnswer{
			read("app_own", "own-3", "app 20 of 3", true), {"GET " + key, http.StatusOK, "atlapp_1"}, {"DELETE " + app, http.StatusOK, `{"ok":true}`}, refused,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newScriptedTenant(t, "shared-2", "own-3", test.answers...)
			p.mustRead = true
			for range test.steps {
				p.step(t.Context())
			}
			if p.app != nil || p.next != nil || p.mustRead || p.changes != 1 || !slices.Equal(p.retired, []string{"atlapp_1"}) {
				t.Errorf("the tenant has the app %+v, %d changes and the retired keys %q", p.app, p.changes, p.retired)
			}
		})
	}
}

// TestTenantReadsBeforeRepeatedRemoval answers a removal with an error. Before a tenant repeats it, it reads the app if another tenant can
// have the slug or the folder of the app by then.
func TestTenantReadsBeforeRepeatedRemoval(t *testing.T) {
	for _, test := range []struct {
		slug, folder string
		reads        bool
	}{{"shared-2", "own-3", true}, {"own-3", "folder-1", true}, {"own-3", "own-3", false}} {
		t.Run(test.slug+" in "+test.folder, func(t *testing.T) {
			p := newScriptedTenant(t, test.slug, test.folder, scriptedAnswer{"GET /v1/ws/annex/drive/" + test.folder + "/key", http.StatusOK, "atlapp_1"},
				scriptedAnswer{"DELETE /v1/ws/annex/apps/" + test.slug, http.StatusServiceUnavailable, `{"error":"unavailable"}`})
			p.step(t.Context())
			if p.app == nil || p.next == nil || p.mustRead != test.reads {
				t.Errorf("the tenant reads the app: %t, want %t", p.mustRead, test.reads)
			}
		})
	}
}
