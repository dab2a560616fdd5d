package app_test

import (
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/credential"
	"github.com/atelier-run/atelier/entity/entitytest"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	owner  = workspacev1.Role_ROLE_OWNER
	editor = workspacev1.Role_ROLE_EDITOR
	viewer = workspacev1.Role_ROLE_VIEWER

	appID    = "app_01234567890123456789012345"
	identity = "ws_1/" + appID

	reconciling = appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILING
	reconciled  = appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED
	failed      = appv1.RuntimeStatus_RUNTIME_STATUS_FAILED

	activeFolder = appv1.FolderState_FOLDER_STATE_ACTIVE
	broken       = appv1.FolderState_FOLDER_STATE_BROKEN
	orphaned     = appv1.FolderState_FOLDER_STATE_ORPHANED

	public  = appv1.Visibility_VISIBILITY_PUBLIC
	private = appv1.Visibility_VISIBILITY_FOLDER
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// world is one app, the rows of its lists and its credential, as the journal and the reactions would have them.
type world struct {
	t    rapid.TB
	s    *appv1.App
	now  time.Time
	as   *wirev1.Principal
	role workspacev1.Role

	history []appv1.Event
	rows    map[string]proto.Message
	log     []*auditv1.Event
	// credential is the credential of the app's key; sent are the commands to other entities.
	credential *credentialv1.Credential
	sent       []entity.Command
}

func newWorld(t rapid.TB) *world {
	w := &world{t: t, s: app.Zero(identity), now: noon, rows: map[string]proto.Message{}, credential: credential.Zero(appID)}
	return w.user("alice", editor)
}

// newApp returns a world with a registered app that is being reconciled.
func newApp(t rapid.TB, change ...func(*appv1.Registration)) *world {
	t.Helper()
	w := newWorld(t)
	r := &appv1.Registration{
		AppId: appID, AnchorId: "anc_1", Path: "sites/shop", Slug: "shop", Name: "Shop", Icon: "icon.png", CreatedByUserId: "alice", Position: 7,
		Runtime: &appv1.Runtime{Command: "serve", InstallCommand: "install", Port: 3000, ApiScopes: []string{entity.FilesRead}},
	}
	for _, c := range change {
		c(r)
	}
	w.platform().must(&appv1.RegisterApp{Registration: r})
	return w.user("alice", editor)
}

// newRunning returns a world with an app that is reconciled and has a key.
func newRunning(t rapid.TB, change ...func(*appv1.Registration)) *world {
	t.Helper()
	w := newApp(t, change...)
	w.issue('a')
	w.report("")
	return w
}

func (w *world) user(id string, role workspacev1.Role) *world {
	w.as, w.role = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: id, CredentialId: "key_" + id}, role
	return w
}

func (w *world) platform() *world {
	w.as, w.role = entity.Platform(), owner
	return w
}

// asPlatform sends a command of the platform.
func (w *world) asPlatform(c appv1.Command) proto.Message {
	w.t.Helper()
	as, role := w.as, w.role
	defer func() { w.as, w.role = as, role }()
	return w.platform().must(c)
}

// report reports the result of the requested generation; "" is success.
func (w *world) report(failure string) {
	w.t.Helper()
	w.asPlatform(&appv1.ReportReconciled{Generation: w.s.GetGeneration(), Failure: failure})
}

// issue records a key for the newest generation.
func (w *world) issue(secret byte) *appv1.Key {
	w.t.Helper()
	return w.asPlatform(&appv1.IssueKey{Generation: w.s.GetGeneration(), SecretSha256: hash(secret)}).(*appv1.Key)
}

func hash(secret byte) []byte {
	sum := make([]byte, 32)
	for i := range sum {
		sum[i] = secret
	}
	return sum
}

func (w *world) call() entity.Call {
	return entity.Call{Now: w.now, Identity: identity, Principal: w.as, Role: w.role, Version: uint64(len(w.history)) + 1}
}

// send decides a command, applies its events, rows and reactions, and returns the reply. It fails the test if a refusal has events, if
// Evolve changes its argument, or if the state does not count its events.
func (w *world) send(c appv1.Command) (proto.Message, error) {
	w.t.Helper()
	call := w.call()
	events, err := app.Decide(call, w.s, c)
	if err != nil {
		if entitytest.Code(err) == "" || len(events) > 0 {
			w.t.Fatalf("%T: refused with %v and %d events", c, err, len(events))
		}
		return nil, err
	}
	before := w.s
	for _, e := range events {
		was := proto.Clone(w.s)
		next := app.Evolve(w.s, e)
		if !proto.Equal(was, w.s) {
			w.t.Fatalf("Evolve changed its argument for %T", e)
		}
		w.s, w.history = next, append(w.history, e)
	}
	if w.s.GetRevision() != uint64(len(w.history)) {
		w.t.Fatalf("revision %d after %d events", w.s.GetRevision(), len(w.history))
	}
	for _, row := range app.Rows(call, before, w.s, c, events) {
		_, exists := w.rows[row.List+" "+row.Key]
		switch {
		case row.List == audit.List && exists:
			w.t.Fatalf("%T overwrites an audit row", c)
		case row.List == audit.List:
			w.log = append(w.log, row.Message.(*auditv1.Event))
		}
		if row.Message == nil {
			delete(w.rows, row.List+" "+row.Key)
		} else {
			w.rows[row.List+" "+row.Key] = row.Message
		}
	}
	for _, e := range events {
		for _, r := range app.Kind.React(identity, e) {
			w.deliver(r.Command)
		}
	}
	return app.Reply(call, w.s, c, events), nil
}

// deliver applies a reaction to the credential, and records reactions to other entities.
func (w *world) deliver(c entity.Command) {
	w.t.Helper()
	m, is := c.Message.(credentialv1.Command)
	if !is {
		w.sent = append(w.sent, c)
		return
	}
	call := entity.Call{Now: w.now, Identity: c.Identity, Principal: entity.Platform()}
	events, err := credential.Decide(call, w.credential, m)
	if err != nil {
		w.t.Fatalf("%v: %v", m, err)
	}
	for _, e := range events {
		w.credential = credential.Evolve(w.credential, e)
	}
}

// accepts reports whether a secret opens the credential of the app.
func (w *world) accepts(secret byte) bool {
	return credential.IsUsable(w.credential, w.now.UnixMilli()) && w.credential.GetSecretSha256()[0] == secret
}

func (w *world) must(c appv1.Command) proto.Message {
	w.t.Helper()
	m, err := w.send(c)
	if err != nil {
		w.t.Fatalf("%T: %v", c, err)
	}
	return m
}

// mustNotChange sends a command that must have no events.
func (w *world) mustNotChange(c appv1.Command) {
	w.t.Helper()
	n := len(w.history)
	if w.must(c); len(w.history) != n {
		w.t.Fatalf("%T: %v", c, w.history[n:])
	}
}

func (w *world) refused(c appv1.Command, want entity.Code) {
	w.t.Helper()
	if _, err := w.send(c); entitytest.Code(err) != want {
		w.t.Fatalf("%T: %v, want %s", c, err, want)
	}
}

// logged returns the names of the audit events since the last call.
func (w *world) logged() (names []string) {
	for _, e := range w.log {
		names = append(names, e.GetEvent())
	}
	w.log = nil
	return names
}

// task returns the kind of the open task; "" if there is none.
func (w *world) task() string {
	switch all := app.Tasks(w.s); len(all) {
	case 0:
		return ""
	case 1:
		return all[0].Kind
	default:
		w.t.Fatalf("tasks %v", all)
		return ""
	}
}

func (w *world) waits(c appv1.Command) bool { return app.Waits(w.call(), w.s, c) }
