package http_test

import (
	"context"
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// boundary is a real node with accounts; workspaces are created when they are needed.
type boundary struct {
	stage  *stage
	people map[string]account
	// shared has the workspaces for requests that change nothing, by whether they are suspended.
	shared map[bool]*scene
	made   int
	// elsewhere is the id of a workspace that the requests do not name.
	elsewhere string
}

type account struct{ id, email, key string }

// scene is a workspace with members, and an example of each thing that operations name.
type scene struct {
	*boundary
	t          *testing.T
	id, slug   string
	anchor     string
	invitation string
	// things has the values that are created when the first request needs them. Scenes of one workspace share them.
	things *sceneThings
	// as is the name of the account behind the visitor.
	as string
}

type sceneThings struct{ session string }

// exampleRequest is a request with a path without variables; body is JSON or the content of a file.
type exampleRequest struct {
	target, body string
	headers      headers
	// refusal, if it is set, is a part of the error that callers with access get, for a reason other than access.
	refusal string
}

const (
	kindUser       = wirev1.CredentialKind_CREDENTIAL_KIND_USER
	kindSession    = wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION
	kindOAuth      = wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH
	kindApp        = wirev1.CredentialKind_CREDENTIAL_KIND_APP
	kindComputer   = wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM
	kindLimitedKey = wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY
	kindImp        = wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION
)

func newBoundary(t *testing.T) *boundary { return newBoundaryOn(t, newStage(t)) }

func newBoundaryOn(t *testing.T, s *stage) *boundary {
	b := &boundary{stage: s, people: map[string]account{}, shared: map[bool]*scene{}}
	for _, name := range []string{"owner", "editor", "viewer", "removed", "outsider", "target", "disabled", "admin", "host"} {
		answer := request(t, b.stage.node.Server.Admin(), "POST", "/admin/users", "", fmt.Sprintf(`{"email":"%s@example.com","name":"%s"}`, name, name))
		var created struct{ UserID, Email, Key string }
		if err := json.Unmarshal(answer.Body.Bytes(), &created); err != nil {
			t.Fatalf("%v: %s", err, answer.Body)
		}
		b.people[name] = account{created.UserID, created.Email, created.Key}
	}
	b.ask(t, entity.KindUser, b.people["admin"].id, &userv1.SetInternalAdmin{InternalAdmin: true})
	b.elsewhere = b.host(t)
	return b
}

// host creates a workspace of the account host, and returns its id.
func (b *boundary) host(t *testing.T) (id string) {
	host, slug := b.people["host"], fmt.Sprintf("host%d", b.stage.ids.Add(1))
	id = b.stage.newID("ws_")
	b.ask(t, entity.KindSlug, slug, &slugv1.ClaimSlug{
		WorkspaceId: id, WorkspaceName: "Host", CreatorId: host.id, CreatorEmail: host.email,
	})
	b.settle(t, slug)
	return id
}

func (b *boundary) ask(t *testing.T, kind, identity string, m proto.Message) proto.Message {
	t.Helper()
	return b.askAs(t, entity.Platform(), kind, identity, m)
}

func (b *boundary) askAs(t *testing.T, p *wirev1.Principal, kind, identity string, m proto.Message) proto.Message {
	t.Helper()
	reply, err := b.stage.node.Router.Ask(t.Context(), entity.Command{Kind: kind, Identity: identity, Principal: p, Message: m})
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	return reply
}

func (b *boundary) settle(t *testing.T, identity string) {
	t.Helper()
	for range 4 { // chains have several steps
		if err := b.stage.node.Router.SettleAll(t.Context(), b.stage.node.Router.Partition(identity)); err != nil {
			t.Fatal(err)
		}
	}
}

// scene returns a new workspace if the visitor may change it (fresh), or else a shared one.
func (b *boundary) scene(t *testing.T, v visitor, fresh bool) *scene {
	as := v.role
	if as == "" {
		as = v.name
	}
	if found := b.shared[v.isSuspended]; !fresh && found != nil {
		sc := *found
		sc.t, sc.as = t, as
		return &sc
	}
	b.made++
	sc := &scene{boundary: b, t: t, as: as, things: &sceneThings{}, slug: fmt.Sprintf("space%d", b.made)}
	answer := request(t, b.stage.node.Server, "POST", "/v1/workspaces", b.people["owner"].key, fmt.Sprintf(`{"slug":%q,"name":"Space"}`, sc.slug))
	var created struct{ WorkspaceID string }
	if err := json.Unmarshal(answer.Body.Bytes(), &created); err != nil || created.WorkspaceID == "" {
		t.Fatalf("%v: %s", err, answer.Body)
	}
	sc.id = created.WorkspaceID
	sc.populate()
	sc.createThings()
	if v.isSuspended {
		sc.ownAgentSession() // none can be started later
		owner := &wirev1.Principal{Kind: kindUser, UserId: b.people["owner"].id}
		b.askAs(t, owner, entity.KindWorkspace, sc.id, &workspacev1.Suspend{})
	}
	if !fresh {
		b.shared[v.isSuspended] = sc
	}
	return sc
}

func (sc *scene) populate() {
	for name, role := range map[string]workspacev1.Role{
		"editor": workspacev1.Role_ROLE_EDITOR, "viewer": workspacev1.Role_ROLE_VIEWER,
		"removed": workspacev1.Role_ROLE_EDITOR, "target": workspacev1.Role_ROLE_EDITOR,
	} {
		who := sc.people[name]
		sc.admit(sc.stage.newID("inv_"), who, role)
	}
	sc.ask(sc.t, entity.KindWorkspace, sc.id, &workspacev1.RemoveMember{UserId: sc.people["removed"].id})
	sc.settle(sc.t, sc.id)
}

func (sc *scene) invite(id, email string, role workspacev1.Role) {
	sc.ask(sc.t, entity.KindWorkspace, sc.id, &workspacev1.Invite{
		InvitationId: id, Email: email, Role: role, SecretSha256: make([]byte, 32),
		Inviter: &workspacev1.Person{UserId: sc.people["owner"].id, Email: sc.people["owner"].email},
	})
}

func (sc *scene) admit(id string, who account, role workspacev1.Role) {
	if role == workspacev1.Role_ROLE_VIEWER {
		sc.invite(id, who.email, role)
	} else {
		sc.invite(id, who.email, workspacev1.Role_ROLE_EDITOR)
	}
	sc.ask(sc.t, entity.KindWorkspace, sc.id, &workspacev1.AcceptInvitation{
		InvitationId: id, Person: &workspacev1.Person{UserId: who.id, Email: who.email},
	})
}

// createThings creates files, a pending invitation, an anchor, and an agent in the folder notes. Functions with names that
// begin with own create the things that belong to an account.
func (sc *scene) createThings() {
	sc.invitation, sc.anchor = sc.stage.newID("inv_"), sc.stage.newID("anc_")
	sc.invite(sc.invitation, fmt.Sprintf("guest%d@example.com", sc.made), workspacev1.Role_ROLE_EDITOR)
	for _, folder := range []string{"notes", "writer"} {
		if got := request(sc.t, sc.stage.node.Server, "MKCOL", "/v1/ws/"+sc.slug+"/drive/"+folder, sc.people["owner"].key, ""); got.Code != 201 {
			sc.t.Fatalf("%s: %d %s", folder, got.Code, got.Body)
		}
	}
	const agent = "---\nname: Writer\ndescription: Writes.\n---\n"
	for path, body := range map[string]string{"a.txt": "a", "b.txt": "b", "notes/AGENT.md": agent, "writer/AGENT.md": agent} {
		if got := request(sc.t, sc.stage.node.Server, "PUT", "/v1/ws/"+sc.slug+"/drive/"+path, sc.people["owner"].key, body); got.Code != 201 {
			sc.t.Fatalf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	sc.ask(sc.t, entity.KindWorkspace, sc.id, &workspacev1.CreateAnchor{
		AnchorId: sc.anchor, Path: "a.txt", Kind: workspacev1.AnchorKind_ANCHOR_KIND_APP,
	})
	sc.ask(sc.t, entity.KindWorkspace, sc.id, &workspacev1.RegisterAgent{
		AnchorId: sc.stage.newID("anc_"), Path: "notes",
		Agent: &workspacev1.Agent{Id: sc.stage.newID("agt_"), Slug: "notes", Name: "Notes", Description: "Notes."},
	})
	sc.ask(sc.t, entity.KindWorkspace, sc.id, &workspacev1.RegisterApp{Registration: &appv1.Registration{
		AnchorId: sc.stage.newID("anc_"), AppId: sc.stage.newID("app_"), Path: "notes", Slug: "shop", CreatedByUserId: sc.people["owner"].id,
		Runtime: &appv1.Runtime{Command: "serve"},
	}})
	sc.settle(sc.t, sc.id)
}

func bearer(key string) headers { return headers{"Authorization": "Bearer " + key} }

func person(name string) func(*scene) headers {
	return func(sc *scene) headers { return bearer(sc.people[name].key) }
}

func (sc *scene) now() int64 { return sc.stage.clock.Now().UnixMilli() }

// register registers a credential, as the platform.
func (sc *scene) register(kind wirev1.CredentialKind, edit func(*credentialv1.Credential)) string {
	id := sc.stage.newID(keyPrefix(kind))
	text, hash := newKeyOf(kind, id)
	c := &credentialv1.Credential{Id: id, Kind: kind, SecretSha256: hash, CreatedAt: sc.now()}
	edit(c)
	sc.ask(sc.t, entity.KindCredential, id, &credentialv1.RegisterCredential{Credential: c})
	return text
}

func (sc *scene) unknownKey() headers {
	text, _ := newKeyOf(kindUser, sc.stage.newID("key_"))
	return bearer(text)
}

func (sc *scene) expiredKey() headers {
	return bearer(sc.register(kindUser, func(c *credentialv1.Credential) {
		c.UserId, c.ExpiresAt = sc.people["owner"].id, sc.now()-1
	}))
}

func (sc *scene) revokedKey() headers {
	var id string
	text := sc.register(kindUser, func(c *credentialv1.Credential) { id, c.UserId = c.Id, sc.people["owner"].id })
	sc.ask(sc.t, entity.KindCredential, id, &credentialv1.RevokeCredential{})
	return bearer(text)
}

func (sc *scene) disabledKey() headers {
	who := sc.people["disabled"]
	sc.ask(sc.t, entity.KindUser, who.id, &userv1.Disable{})
	return bearer(who.key)
}

func (sc *scene) session() (id, text string) {
	text = sc.register(kindSession, func(c *credentialv1.Credential) { id, c.UserId = c.Id, sc.people["owner"].id })
	return id, text
}

func (sc *scene) sessionAsBearer() headers {
	_, text := sc.session()
	return bearer(text)
}

func (sc *scene) cookie() headers {
	_, text := sc.session()
	return headers{"Cookie": "atelier=" + text}
}

func (sc *scene) impersonation() headers {
	return bearer(sc.register(kindImp, func(c *credentialv1.Credential) {
		c.UserId, c.ImpersonatorId = sc.people["owner"].id, sc.people["admin"].id
	}))
}

func appKey(creator string, grants ...string) func(*scene) headers {
	return func(sc *scene) headers {
		return bearer(sc.register(kindApp, func(c *credentialv1.Credential) {
			c.UserId, c.WorkspaceId, c.Grants = sc.people[creator].id, sc.id, grants
		}))
	}
}

func (sc *scene) foreignApp() headers {
	return bearer(sc.register(kindApp, func(c *credentialv1.Credential) {
		c.UserId, c.WorkspaceId, c.Grants = sc.people["owner"].id, sc.elsewhere, everything
	}))
}

// limitedKey returns a key of a person with capabilities and, if change is set, further limits.
func limitedKey(owner string, capabilities []string, change ...func(*credentialv1.Credential)) func(*scene) headers {
	return func(sc *scene) headers {
		return bearer(sc.register(kindLimitedKey, func(c *credentialv1.Credential) {
			c.UserId, c.Grants = sc.people[owner].id, capabilities
			for _, f := range change {
				f(c)
			}
		}))
	}
}

func readOnly(c *credentialv1.Credential) { c.ReadOnly = true }

func (sc *scene) keyForHere() headers {
	return limitedKey("owner", everything, func(c *credentialv1.Credential) { c.WorkspaceIds = []string{sc.elsewhere, sc.id} })(sc)
}

func (sc *scene) keyForElsewhere() headers {
	return limitedKey("owner", everything, func(c *credentialv1.Credential) { c.WorkspaceIds = []string{sc.elsewhere} })(sc)
}

func (sc *scene) revokedLimitedKey() headers {
	var id string
	key := limitedKey("owner", everything, func(c *credentialv1.Credential) { id = c.Id })(sc)
	sc.ask(sc.t, entity.KindCredential, id, &credentialv1.RevokeCredential{})
	return key
}

// limitedKeyAsKey returns the secret of a limited key in the form of a key without limits.
func (sc *scene) limitedKeyAsKey() headers {
	key := limitedKey("owner", everything)(sc)
	key["Authorization"] = strings.Replace(key["Authorization"], "atllim_", "atl_", 1)
	return key
}

func (sc *scene) computer() headers {
	return bearer(sc.register(kindComputer, func(c *credentialv1.Credential) { c.WorkspaceId = sc.id }))
}

func (sc *scene) foreignComputer() headers {
	return bearer(sc.register(kindComputer, func(c *credentialv1.Credential) { c.WorkspaceId = sc.elsewhere }))
}

func oauth(owner string, scopes ...string) func(*scene) headers {
	return func(sc *scene) headers {
		_, text := sc.open(owner, scopes...)
		return bearer(text)
	}
}

// open creates a grant with a live access token.
func (sc *scene) open(owner string, scopes ...string) (id, text string) {
	return sc.openFor("http://localhost:8080", owner, scopes...)
}

func (sc *scene) openFor(audience, owner string, scopes ...string) (id, text string) {
	id = sc.stage.newID("ogr_")
	text, hash := newKeyOf(kindOAuth, id)
	_, other := newKeyOf(kindOAuth, id)
	soon, later := sc.now()+time.Minute.Milliseconds(), sc.now()+time.Hour.Milliseconds()
	sc.ask(sc.t, entity.KindGrant, id, &grantv1.OpenGrant{Grant: &grantv1.Grant{
		Id: id, UserId: sc.people[owner].id, ClientId: "oc_1", WorkspaceId: sc.id, Scopes: scopes,
		Audience: audience, RedirectUri: "http://127.0.0.1/", CodeChallenge: hash,
		Code: &grantv1.Token{SecretSha256: other, ExpiresAt: soon}, CreatedAt: sc.now(),
	}})
	sc.ask(sc.t, entity.KindGrant, id, &grantv1.RedeemCode{
		CodeSha256: other,
		Access:     &grantv1.Token{SecretSha256: hash, ExpiresAt: later},
		Refresh:    &grantv1.Token{SecretSha256: other, ExpiresAt: later},
	})
	return id, text
}

func (sc *scene) foreignGrant() headers {
	_, text := sc.openFor("https://elsewhere.example", "owner", everything...)
	return bearer(text)
}

func (sc *scene) revokedGrant() headers {
	id, text := sc.open("owner", everything...)
	sc.ask(sc.t, entity.KindGrant, id, &grantv1.Revoke{At: sc.now()})
	return bearer(text)
}

// send sends a request of an operation. A stream is cancelled once its response has begun.
func (sc *scene) send(r server.Route, in exampleRequest, credential headers, body string) *httptest.ResponseRecorder {
	ctx, cancel := context.WithTimeout(sc.t.Context(), longest)
	defer cancel()
	w := &recorder{ResponseRecorder: httptest.NewRecorder(), begun: cancel}
	if !strings.HasSuffix(r.Path, "/events") && !strings.HasSuffix(r.Path, "/logs") {
		w.begun = func() {}
	}
	req := httptest.NewRequestWithContext(ctx, r.Method, in.target, strings.NewReader(body))
	if strings.HasPrefix(in.body, "{") {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, all := range []headers{in.headers, credential} {
		for name, value := range all {
			req.Header.Set(name, value)
		}
	}
	sc.stage.node.Server.ServeHTTP(w, req)
	return w.ResponseRecorder
}

// recorder calls begun when the response has begun.
type recorder struct {
	*httptest.ResponseRecorder
	begun func()
}

func (r *recorder) Write(b []byte) (int, error) {
	defer r.begun()
	return r.ResponseRecorder.Write(b)
}

// expectRefusal checks that a response is a refusal with a status and code.
func (sc *scene) expectRefusal(t *testing.T, name string, r server.Route, got *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	if isPage(r) {
		if got.Code != status || status == nethttp.StatusSeeOther && !strings.HasPrefix(got.Header().Get("Location"), code) {
			t.Errorf("%s: %d to %q, want %d %s", name, got.Code, got.Header().Get("Location"), status, code)
		}
		return
	}
	var body struct{ Error string }
	if got.Body.Len() > 0 {
		_ = json.Unmarshal(got.Body.Bytes(), &body) // a HEAD has none
	}
	if got.Code != status || got.Body.Len() > 0 && body.Error != code {
		t.Errorf("%s: %d %s, want %d %s", name, got.Code, got.Body, status, code)
	}
	if status == nethttp.StatusUnauthorized && got.Header().Get("Www-Authenticate") == "" {
		t.Errorf("%s: no challenge", name)
	}
}
