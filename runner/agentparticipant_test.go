package runner_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/meta"
	"github.com/atelier-run/atelier/runner/runnertest"
	platformtools "github.com/atelier-run/atelier/runner/tools"
)

const childID = "ses_child"

// startChild starts a child of the session as its agent.
func (f *fixture) startChild(s runner.Session) {
	f.t.Helper()
	caller := platformtools.SessionCaller(s.WorkspaceID(), s.SessionID(), s.UserID(), s.Capabilities(), s.Participant(), s)
	if _, err := f.world.Ask(f.t.Context(), entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(runnertest.WorkspaceID, childID), Principal: caller.Principal,
		Message: &sessionv1.StartSession{ParentId: sessionID, Prompt: &sessionv1.Input{Text: "a part"}},
	}); err != nil {
		f.t.Error(err)
	}
}

// TestAccessOfTheParentEndsItsChild has an agent start a child. The agent works for a client, or for a member after a message of
// the member has joined the turn of the client.
func TestAccessOfTheParentEndsItsChild(t *testing.T) {
	wide := proto.CloneOf(client) // so that messages of people may join its turn
	wide.Grants = entity.AgentCapabilities()
	revoke := func(f *fixture) { f.world.Revoke("grant_1") }
	for name, c := range map[string]struct {
		of    *wirev1.Principal
		joins bool
		lose  func(*fixture)
		want  string
	}{
		"the grant is revoked":           {wide, false, revoke, accessLost},
		"after a member has joined":      {wide, true, revoke, "terminal complete"},
		"the member who joined, removed": {wide, true, func(f *fixture) { f.world.Refuse("bob", errNotFound) }, accessLost},
		"the key is revoked":             {limitedKey, false, func(f *fixture) { f.world.Revoke("key_1") }, accessLost},
		"the app is disabled":            {ofApp, false, func(f *fixture) { accessLosses["app disabled"].lose(f.world) }, accessLost},
	} {
		for _, extended := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					takes := func(*runnertest.Process, meta.SteerRequest[acp.ContentBlock]) bool { return true }
					var f *fixture
					f = newFixture(t, &runnertest.Agent{Extended: extended, Steer: takes, Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
						switch {
						case textOf(r) == "a part":
						case c.joins && textOf(r) == "go" && !extended:
							return waitForCancel(ctx, p, r)
						default:
							time.Sleep(10 * time.Second)
							f.startChild(f.tools.sessions[0])
						}
						return done, nil
					}}, nil)
					defer f.end()
					f.startAs(c.of)
					if c.joins {
						go func() {
							time.Sleep(time.Second)
							f.sendAs(bob, "on")
						}()
					}
					f.mustRun()
					c.lose(f)
					if err := f.runAs(childID); err != nil {
						t.Fatal(err)
					}
					got := f.world.Timeline(childID)
					if got[len(got)-1] != c.want {
						t.Errorf("the child's timeline is %q, want that it ends with %q", got, c.want)
					}
				})
			})
		}
	}
}
