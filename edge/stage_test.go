package edge_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/tests/nodetest"
)

const (
	kindUser = wirev1.CredentialKind_CREDENTIAL_KIND_USER
	domain   = "www.notes.test"
	// longest bounds each wait of a test.
	longest = 3 * time.Minute
)

// stage is an edge in front of apps, with the entities of a real node over a real journal.
type stage struct {
	*testing.T
	node    *node.Node
	edge    *edge.Edge
	metrics *prometheus.Registry
	served  *httptest.Server
	ahead   atomic.Int64
	logged  nodetest.Log

	alice, bob  *wirev1.Principal
	workspaceID string
	launcher    *edge.Launcher

	mu sync.Mutex
	// processes has the address of the process of each app; an app without one is stopped. reasons has the reason of an app that cannot be
	// reached.
	processes, reasons map[string]string
	domains            map[string]domainOf
	asked              map[string]int
	// held, if set, gets an element for each question about a binding, which then waits until released is closed.
	held, released chan struct{}
}

// holdBindings makes each question about a binding wait.
func (s *stage) holdBindings(held, released chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.released = held, released
}

// domainOf is a custom domain: the entities of bindings are not part of the stage.
type domainOf struct {
	appID   string
	binding appv1.DomainStatus
	copied  appv1.DomainStatus
}

func newStage(t *testing.T, edit ...func(*edge.Options)) *stage {
	t.Helper()
	s := &stage{
		T: t, metrics: prometheus.NewRegistry(),
		processes: map[string]string{}, reasons: map[string]string{}, domains: map[string]domainOf{}, asked: map[string]int{},
	}
	s.node = nodetest.Start(t, node.Start, node.Options{Dir: t.TempDir(), Clock: s.now, HoldApps: true})
	s.alice, s.bob = s.person("alice"), s.person("bob")
	s.workspaceID = newID("ws_")
	s.ask(entity.KindSlug, "acme", &slugv1.ClaimSlug{WorkspaceId: s.workspaceID, WorkspaceName: "Acme", CreatorId: s.alice.GetUserId(), CreatorEmail: "alice@example.com"})
	s.settle("acme")
	o := edge.Options{
		Asker: s, Dialer: s, Clock: s.now, NewID: newID, PublicURL: &url.URL{Scheme: "http", Host: "atelier.test"}, EdgeHost: "apps.test",
		Log: slog.New(slog.NewTextHandler(&s.logged, nil)), Registerer: s.metrics,
		Limits: edge.Limits{PageWait: 20 * time.Millisecond, StartWait: 20 * time.Millisecond},
	}
	for _, e := range edit {
		e(&o)
	}
	var err error
	if s.edge, err = edge.New(o); err != nil {
		t.Fatal(err)
	}
	s.launcher = &edge.Launcher{Asker: s, NewID: newID, PublicURL: o.PublicURL, EdgeHost: o.EdgeHost}
	s.served = httptest.NewServer(s.edge)
	t.Cleanup(func() {
		s.edge.Close()
		s.served.Close()
	})
	return s
}

func newID(prefix string) string { return prefix + strings.ToLower(ulid.Make().String()) }

func (s *stage) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func (s *stage) advance(d time.Duration) { s.ahead.Add(int64(d)) }

// person creates an account, and returns the principal of its key.
func (s *stage) person(name string) *wirev1.Principal {
	s.Helper()
	return nodetest.NewPerson(s, s.node.Server.Admin(), name+"@example.com", name).Principal()
}

// Ask implements edge.Asker over the node, with the domains of the stage.
func (s *stage) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	s.mu.Lock()
	s.asked[entity.MessageName(c.Message)]++
	bound := s.domains[c.Identity]
	held, released := s.held, s.released
	s.mu.Unlock()
	if c.Kind == entity.KindBinding {
		if held != nil {
			held <- struct{}{}
			<-released
		}
		return &bindingv1.Binding{Hostname: c.Identity, WorkspaceId: s.workspaceID, AppId: bound.appID, Status: bound.binding}, nil
	}
	reply, err := s.node.Router.Ask(ctx, c)
	if found, ok := reply.(*appv1.Description); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		for name, of := range s.domains {
			if of.appID == found.GetApp().GetId() {
				found = proto.CloneOf(found)
				found.App.Domain = &appv1.Domain{Hostname: name, Status: of.copied}
				return found, err
			}
		}
	}
	return reply, err
}

func (s *stage) asks(m proto.Message) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[entity.MessageName(m)]
}

// Dial implements edge.Dialer.
func (s *stage) Dial(ctx context.Context, _, appID string) (net.Conn, error) {
	s.mu.Lock()
	address, reason := s.processes[appID], s.reasons[appID]
	s.mu.Unlock()
	if address == "" {
		if reason == "" {
			reason = "stopped"
		}
		return nil, &entity.Error{Code: entity.Unavailable, Reason: reason}
	}
	// The short times of the stage limit the waits for apps that do not run, and not how long a busy machine takes to connect.
	return new(net.Dialer).DialContext(context.WithoutCancel(ctx), "tcp", address)
}

func (s *stage) ask(kind, identity string, m proto.Message) proto.Message {
	s.Helper()
	return s.askAs(entity.Platform(), kind, identity, m)
}

func (s *stage) askAs(p *wirev1.Principal, kind, identity string, m proto.Message) proto.Message {
	s.Helper()
	reply, err := s.node.Router.Ask(s.Context(), entity.Command{Kind: kind, Identity: identity, Principal: p, Message: m})
	if err != nil {
		s.Fatalf("%T: %v", m, err)
	}
	return reply
}

func (s *stage) settle(identity string) {
	s.Helper()
	for range 4 { // chains have several steps
		if err := s.node.Router.SettleAll(s.Context(), s.node.Router.Partition(identity)); err != nil {
			s.Fatal(err)
		}
	}
}

// register registers an app with a handler as its process, and returns the id. The first configuration of the app is accepted.
func (s *stage) register(slug string, h http.HandlerFunc) string {
	s.Helper()
	id := s.registerOnly(slug)
	// The node tries the command too, and may report first that it has failed.
	for generation := uint64(1); ; generation++ {
		identity := app.Identity(s.workspaceID, id)
		if s.ask(entity.KindApp, identity, &appv1.ReportReconciled{Generation: generation}).(*appv1.Description).GetApp().GetAccepted() != nil {
			break
		}
		s.ask(entity.KindApp, identity, &appv1.RestartApp{})
	}
	if h != nil {
		s.serveBy(id, h)
	}
	return id
}

func (s *stage) registerOnly(slug string) string {
	s.Helper()
	id := newID(app.IDPrefix)
	s.askAs(s.alice, entity.KindWorkspace, s.workspaceID, &workspacev1.RegisterApp{Registration: &appv1.Registration{
		AppId: id, AnchorId: newID("anc_"), Path: slug, Slug: slug, Runtime: &appv1.Runtime{Command: "run"}, CreatedByUserId: s.alice.GetUserId(),
	}})
	s.settle(s.workspaceID)
	return id
}

func (s *stage) serveBy(appID string, h http.HandlerFunc) {
	process := httptest.NewServer(h)
	s.Cleanup(process.Close)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.processes[appID] = process.Listener.Addr().String()
}

func (s *stage) askApp(id string, m proto.Message) {
	s.ask(entity.KindApp, app.Identity(s.workspaceID, id), m)
}

func (s *stage) publish(id string) {
	s.askApp(id, &appv1.SetVisibility{Visibility: appv1.Visibility_VISIBILITY_PUBLIC})
	s.advance(2 * time.Second) // the caches are a second old at most
}

// bind binds the domain to an app.
func (s *stage) bind(appID string, binding, copied appv1.DomainStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.domains[domain] = domainOf{appID, binding, copied}
}

// request has the headers in pairs; "Host" sets the host, notes--acme.apps.test without it.
func (s *stage) request(method, target, body string, headers ...string) *http.Request {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), method, s.served.URL+target, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Host = "notes--acme.apps.test"
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// send sends a request and reads the response to its end.
func (s *stage) send(r *http.Request) (*http.Response, string) {
	s.Helper()
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return response, string(body)
}

func (s *stage) get(target string, headers ...string) (*http.Response, string) {
	s.Helper()
	return s.send(s.request("GET", target, "", headers...))
}

// document has the headers of a browser that requests a document.
var document = []string{"Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate", "Accept", "text/html"}

// launch launches an app as a person, and returns the path with the grant, and the host.
func (s *stage) launch(p *wirev1.Principal, appID, host, path string) (target, at string) {
	s.Helper()
	address, err := s.launcher.Launch(s.Context(), p, s.workspaceID, appID, host, path)
	if err != nil {
		s.Fatal(err)
	}
	parsed, err := url.Parse(address)
	if err != nil {
		s.Fatal(err)
	}
	return parsed.RequestURI(), parsed.Host
}

// visit launches an app as a person, and returns the cookie of the visit.
func (s *stage) visit(p *wirev1.Principal, appID string) string {
	s.Helper()
	target, host := s.launch(p, appID, "", "")
	response, body := s.get(target, "Host", host)
	if response.StatusCode != http.StatusSeeOther || len(response.Cookies()) != 1 {
		s.Fatalf("redeeming: %s %v %s", response.Status, response.Header, body)
	}
	return response.Cookies()[0].Name + "=" + response.Cookies()[0].Value
}

// raw sends bytes over a connection of its own, and returns the responses until the edge closes it.
func (s *stage) raw(text string) string {
	s.Helper()
	c, err := net.Dial("tcp", s.served.Listener.Addr().String())
	if err != nil {
		s.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(longest)); err != nil {
		s.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		s.Fatal(err)
	}
	all, err := io.ReadAll(bufio.NewReader(c))
	if err != nil {
		s.Fatalf("%v after %q", err, all)
	}
	return string(all)
}

func (s *stage) expect(response *http.Response, body string, status int, part string) {
	s.Helper()
	if response.StatusCode != status || !strings.Contains(body, part) {
		s.Errorf("%s %s, want %d %s", response.Status, body, status, part)
	}
}

// join makes a person a viewer of the workspace.
func (s *stage) join(p *wirev1.Principal) {
	s.Helper()
	id, email := newID("inv_"), p.GetUserId()+"@example.com"
	s.ask(entity.KindWorkspace, s.workspaceID, &workspacev1.Invite{
		InvitationId: id, Email: email, Role: workspacev1.Role_ROLE_VIEWER, SecretSha256: make([]byte, 32),
		Inviter: &workspacev1.Person{UserId: s.alice.GetUserId(), Email: "alice@example.com"},
	})
	s.ask(entity.KindWorkspace, s.workspaceID, &workspacev1.AcceptInvitation{
		InvitationId: id, Person: &workspacev1.Person{UserId: p.GetUserId(), Email: email},
	})
	s.settle(s.workspaceID)
}

// reason sets the reason why an app without a process cannot be reached.
func (s *stage) reason(appID, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reasons[appID] = reason
}
