package http_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/entity"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
)

// TestTerminalsOfMembers opens terminals on a whole node, with the rules of workspaces.
func TestTerminalsOfMembers(t *testing.T) { checkTerminalsOfMembers(t, newStage) }

// TestTerminalsOfMembersInSplitMode does the same while partitions move between two actor systems.
func TestTerminalsOfMembersInSplitMode(t *testing.T) { checkTerminalsOfMembers(t, newSplitStage) }

func checkTerminalsOfMembers(t *testing.T, start func(*testing.T) *stage) {
	t.Helper()
	for _, loss := range accessLosses {
		t.Run(loss.name, func(t *testing.T) {
			sc := newBoundaryOn(t, start(t)).scene(t, visitor{name: "editor"}, true)
			member := func(name string) *machine { return sc.machine(sc.people[name].key) }
			editor := member("editor")
			attached, detached := editor.connect(""), editor.connect("")
			detached.conn.CloseNow()
			for name, status := range map[string]int{"owner": 404, "viewer": 403, "outsider": 404, "removed": 404} {
				if _, response, _ := member(name).dialTerminal("?terminalId=" + detached.id); response.StatusCode != status {
					t.Errorf("%s: %d", name, response.StatusCode)
				}
			}
			of := member("owner").connect("")
			loss.lose(sc)
			if code := attached.closed(); code != websocket.StatusPolicyViolation || attached.end != loss.code {
				t.Errorf("closed with %d after %s", code, attached.end)
			}
			editor.waitEnded(attached.id)
			editor.waitEnded(detached.id)
			if loss.name == "suspended" { // no member may run anything
				of.closed()
				return
			}
			of.enter("exit 7")
			if of.closed(); of.end != "7" {
				t.Errorf("the owner's terminal ended with %s", of.end)
			}
		})
	}
}

// TestCommandsOfMembers runs commands until their members lose access. A suspension ends the commands of all members.
func TestCommandsOfMembers(t *testing.T) {
	for _, loss := range accessLosses {
		t.Run(loss.name, func(t *testing.T) {
			sc := newBoundaryOn(t, newStage(t)).scene(t, visitor{name: "editor"}, true)
			editor := sc.machine(sc.people["editor"].key).run(shell("echo ready; sleep 1000 & sleep 1000"))
			of := sc.machine(sc.people["owner"].key).run(shell("echo ready; " + untilFile("go") + "; exit 7"))
			for _, x := range []*execution{editor, of} {
				if _, err := x.next(); err != nil {
					t.Fatal(err)
				}
			}
			loss.lose(sc)
			if _, _, end := editor.rest(); end != loss.code {
				t.Errorf("the editor's command ended with %s", end)
			}
			want := loss.code
			if loss.name != "suspended" {
				of.create("go")
				want = "7"
			}
			if _, _, end := of.rest(); end != want {
				t.Errorf("the owner's command ended with %s, want %s", end, want)
			}
			editor.waitRunning(0)
		})
	}
}

// machine returns a client of the workspace with a key.
func (sc *scene) machine(key string) *machine {
	return &machine{
		T: sc.t, computers: sc.stage.computers, key: key, host: strings.TrimPrefix(sc.stage.live.URL, "http://"), slug: sc.slug,
		client: sc.stage.live.Client(),
	}
}

// TestTerminalLastsAsLongAsItsGrant opens a terminal with an access token. It ends when the grant has no access token any more,
// and not already with the token that opened it.
func TestTerminalLastsAsLongAsItsGrant(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "owner"}, true)
	id := sc.stage.newID("ogr_")
	token := func(lasts time.Duration) (string, *grantv1.Token) {
		text, hash := newKeyOf(kindOAuth, id)
		return text, &grantv1.Token{SecretSha256: hash, ExpiresAt: sc.now() + lasts.Milliseconds()}
	}
	_, code := token(time.Minute)
	text, access := token(10 * time.Minute)
	_, refresh := token(time.Hour)
	sc.ask(t, entity.KindGrant, id, &grantv1.OpenGrant{Grant: &grantv1.Grant{
		Id: id, UserId: sc.people["owner"].id, ClientId: "oc_1", WorkspaceId: sc.id, Scopes: []string{"services"},
		Audience: "http://localhost:8080", RedirectUri: "http://127.0.0.1/", CodeChallenge: code.GetSecretSha256(), Code: code, CreatedAt: sc.now(),
	}})
	sc.ask(t, entity.KindGrant, id, &grantv1.RedeemCode{CodeSha256: code.GetSecretSha256(), Access: access, Refresh: refresh})
	p := sc.machine(text).connect("")

	sc.stage.clock.advance(9 * time.Minute)
	_, next := token(10 * time.Minute)
	_, last := token(time.Hour)
	sc.ask(t, entity.KindGrant, id, &grantv1.Refresh{RefreshSha256: refresh.GetSecretSha256(), Access: next, Refresh: last})
	sc.stage.clock.advance(5 * time.Minute)
	for began := time.Now(); time.Since(began) < 1200*time.Millisecond; { // the watcher checks the grant twice
		p.output.Reset()
		p.enter("echo $((1+1))-is-two")
		p.until("2-is-two")
	}
	sc.stage.clock.advance(6 * time.Minute)
	if code := p.closed(); code != websocket.StatusPolicyViolation || p.end != "unauthorized" {
		t.Errorf("closed with %d after %s", code, p.end)
	}
}
