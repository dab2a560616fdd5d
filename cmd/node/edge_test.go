package node

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/tests/nodetest"
)

// edgeSite is a node with an app that has no process. The clock of the node stands still: no answer that the edge has cached ever ages.
type edgeSite struct {
	*testing.T
	*Node
	url         string
	workspaceID string
	owner       *wirev1.Principal
	key         string
}

func newEdgeSite(t *testing.T) *edgeSite {
	t.Helper()
	still := time.Now()
	o := Options{Dir: t.TempDir(), HoldApps: true, Clock: func() time.Time { return still }}
	o.HTTP.PublicURL, o.Domains.EdgeHost = &url.URL{Scheme: "http", Host: "atelier.test"}, "apps.test"
	o.Edge.Limits.StartWait = time.Millisecond
	front := nodetest.Listen(t)
	s := &edgeSite{T: t, Node: nodetest.Start(t, Start, o), url: front.URL, workspaceID: server.NewID("ws_")}
	front.Serve(s.Server)
	s.owner, s.key = s.person("ada")
	s.ask(entity.KindSlug, "acme", &slugv1.ClaimSlug{
		WorkspaceId: s.workspaceID, WorkspaceName: "Acme", CreatorId: s.owner.GetUserId(), CreatorEmail: "ada@example.com",
	})
	s.settle("acme")
	return s
}

func (s *edgeSite) settle(identity string) {
	s.Helper()
	for range 4 { // chains have several steps
		if err := s.Router.SettleAll(s.Context(), s.Router.Partition(identity)); err != nil {
			s.Fatal(err)
		}
	}
}

// person creates an account, and returns the principal of its key, and the key.
func (s *edgeSite) person(name string) (*wirev1.Principal, string) {
	s.Helper()
	p := nodetest.NewPerson(s, s.Server.Admin(), name+"@example.com", name)
	return p.Principal(), p.Key
}

// ask sends a command as agents, operators and executors do: past the API.
func (s *edgeSite) ask(kind, identity string, m proto.Message) {
	s.Helper()
	if _, err := s.Router.Ask(s.Context(), entity.Command{Kind: kind, Identity: identity, Principal: entity.Platform(), Message: m}); err != nil {
		s.Fatalf("%T: %v", m, err)
	}
}

// register registers an app and makes it run, as far as its entity is concerned. It returns the id.
func (s *edgeSite) register(slug string) string {
	s.Helper()
	id := server.NewID(app.IDPrefix)
	if _, err := s.Router.Ask(s.Context(), entity.Command{Kind: entity.KindWorkspace, Identity: s.workspaceID, Principal: s.owner, Message: &workspacev1.RegisterApp{
		Registration: &appv1.Registration{
			AppId: id, AnchorId: server.NewID("anc_"), Path: slug, Slug: slug, Runtime: &appv1.Runtime{Command: "run"}, CreatedByUserId: s.owner.GetUserId(),
		},
	}}); err != nil {
		s.Fatal(err)
	}
	s.settle(s.workspaceID)
	return id
}

func (s *edgeSite) askApp(id string, m proto.Message) {
	s.Helper()
	s.ask(entity.KindApp, app.Identity(s.workspaceID, id), m)
}

func (s *edgeSite) visit(host, cookie string, status int) *http.Response {
	s.Helper()
	return s.request("GET", host, "/", cookie, status)
}

func (s *edgeSite) request(method, host, target, cookie string, status int) *http.Response {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+target, nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Host = host
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode != status {
		s.Errorf("%s at %s: %s %s, want %d", target, host, response.Status, body, status)
	}
	return response
}

// launch returns the cookie of a visit.
func (s *edgeSite) launch(p *wirev1.Principal, appID string) string {
	s.Helper()
	to, err := s.edge.Launcher().Launch(s.Context(), p, s.workspaceID, appID, "", "")
	if err != nil {
		s.Fatal(err)
	}
	at, err := url.Parse(to)
	if err != nil {
		s.Fatal(err)
	}
	response := s.request("GET", at.Host, at.RequestURI(), "", http.StatusSeeOther)
	if len(response.Cookies()) != 1 {
		s.Fatalf("launching: %v", response.Header)
	}
	return response.Cookies()[0].Name + "=" + response.Cookies()[0].Value
}

// The edge sees changes at once, from clients, tools and operators alike. Its 503 means that access is granted and no process runs.
func TestEdgeSeesChangesAtOnce(t *testing.T) {
	s := newEdgeSite(t)
	const notes, tasks = "notes--acme.apps.test", "tasks--acme.apps.test"
	s.visit(notes, "", http.StatusNotFound)
	id := s.register("notes")
	s.visit(notes, "", http.StatusUnauthorized)
	s.askApp(id, &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_PUBLIC})
	s.visit(notes, "", http.StatusServiceUnavailable)
	s.askApp(id, &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_FOLDER})
	s.visit(notes, "", http.StatusUnauthorized)

	s.visit("notes--renamed.apps.test", "", http.StatusNotFound)
	r, err := http.NewRequestWithContext(t.Context(), "PATCH", s.url+"/v1/workspaces/acme", strings.NewReader(`{"slug":"renamed","publicUrlBreakAcknowledged":true}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "atelier.test"
	r.Header.Set("Authorization", "Bearer "+s.key)
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("renaming the workspace: %v %v", response, err)
	}
	response.Body.Close()
	s.visit(notes, "", http.StatusNotFound)
	s.visit("notes--renamed.apps.test", "", http.StatusUnauthorized)

	s.visit("tasks--renamed.apps.test", "", http.StatusNotFound)
	s.register("tasks")
	s.visit("tasks--renamed.apps.test", "", http.StatusUnauthorized)
	s.visit(tasks, "", http.StatusNotFound)
	s.askApp(id, &appv1.RemoveApp{TaskId: server.NewID("stop_")})
	s.visit("notes--renamed.apps.test", "", http.StatusNotFound)
}

// The access of a visitor ends at once with each of the things that it depends on.
func TestEdgeSeesLostAccessAtOnce(t *testing.T) {
	for name, end := range map[string]func(s *edgeSite, p *wirev1.Principal){
		"membership": func(s *edgeSite, p *wirev1.Principal) {
			s.ask(entity.KindWorkspace, s.workspaceID, &workspacev1.RemoveMember{UserId: p.GetUserId()})
		},
		"credential": func(s *edgeSite, p *wirev1.Principal) {
			s.ask(entity.KindCredential, p.GetCredentialId(), &credentialv1.RevokeCredential{})
		},
		"account": func(s *edgeSite, p *wirev1.Principal) { s.ask(entity.KindUser, p.GetUserId(), &userv1.Disable{}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newEdgeSite(t)
			id := s.register("notes")
			bob, _ := s.person("bob")
			invitation, email := server.NewID("inv_"), "bob@example.com"
			s.ask(entity.KindWorkspace, s.workspaceID, &workspacev1.Invite{
				InvitationId: invitation, Email: email, Role: workspacev1.Role_ROLE_VIEWER, SecretSha256: make([]byte, 32),
				Inviter: &workspacev1.Person{UserId: s.owner.GetUserId(), Email: "ada@example.com"},
			})
			s.ask(entity.KindWorkspace, s.workspaceID, &workspacev1.AcceptInvitation{
				InvitationId: invitation, Person: &workspacev1.Person{UserId: bob.GetUserId(), Email: email},
			})
			s.settle(s.workspaceID)
			bobs, owners := s.launch(bob, id), s.launch(s.owner, id)
			s.visit("notes--acme.apps.test", bobs, http.StatusServiceUnavailable)
			s.visit("notes--acme.apps.test", owners, http.StatusServiceUnavailable)
			end(s, bob)
			s.visit("notes--acme.apps.test", bobs, http.StatusUnauthorized)
			s.visit("notes--acme.apps.test", owners, http.StatusServiceUnavailable)
		})
	}
}
