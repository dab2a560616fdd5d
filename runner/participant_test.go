package runner_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/runnertest"
)

var (
	bob        = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "bob", CredentialId: "key_2"}
	client     = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: "alice", CredentialId: "grant_1"}
	limitedKey = &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, UserId: "alice", CredentialId: "key_1", Grants: entity.AllCapabilities(),
	}

	ofApp = appWith(entity.FilesRead, entity.Sessions)

	errNotFound  = entity.Errorf(entity.NotFound, "no such workspace")
	errForbidden = entity.Errorf(entity.Forbidden, "your role does not include this")
)

// appHaving returns the app of appWith with scopes in its configuration.
func appHaving(scopes ...string) *appv1.App {
	return &appv1.App{
		Id: "app_1", CreatedAt: 1, FolderState: appv1.FolderState_FOLDER_STATE_ACTIVE, Accepted: &appv1.Runtime{ApiScopes: scopes},
		Key: &appv1.Key{Number: 1, Scopes: scopes},
	}
}

// changeApp returns a loss of the access of ofApp by a change of the app.
func changeApp(change func(*appv1.App)) func(*runnertest.World) {
	return func(w *runnertest.World) {
		s := appHaving(ofApp.GetGrants()...)
		s.Key = nil // as in all of the changes
		change(s)
		w.SetApp("app_1", s)
	}
}

// accessLosses are the ways in which a person, an OAuth grant, a limited key or an app loses the access to the session that it has started.
var accessLosses = map[string]struct {
	of   *wirev1.Principal
	lose func(*runnertest.World)
}{
	"removed":                      {client, func(w *runnertest.World) { w.Refuse("alice", errNotFound) }},
	"demoted":                      {client, func(w *runnertest.World) { w.Refuse("alice", errForbidden) }},
	"disabled":                     {client, func(w *runnertest.World) { w.Disable("alice") }},
	"revoked":                      {client, func(w *runnertest.World) { w.Revoke("grant_1") }},
	"key revoked":                  {limitedKey, func(w *runnertest.World) { w.Revoke("key_1") }},
	"key expired":                  {limitedKey, func(w *runnertest.World) { w.Expire("key_1", time.Now()) }},
	"app unregistered":             {ofApp, func(w *runnertest.World) { w.SetApp("app_1", nil) }},
	"app removed":                  {ofApp, changeApp(func(s *appv1.App) { s.Removal = &appv1.Removal{} })},
	"app disabled":                 {ofApp, changeApp(func(s *appv1.App) { s.DisabledAt = 1 })},
	"app without its folder":       {ofApp, changeApp(func(s *appv1.App) { s.FolderState = appv1.FolderState_FOLDER_STATE_BROKEN })},
	"app with fewer scopes":        {ofApp, changeApp(func(s *appv1.App) { s.Accepted.ApiScopes = []string{entity.Sessions} })},
	"app with fewer scopes, awake": {ofApp, changeApp(func(s *appv1.App) { s.Key = &appv1.Key{Number: 2, Scopes: []string{entity.Sessions}} })},
	"app without scopes":           {ofApp, changeApp(func(s *appv1.App) { s.Accepted.ApiScopes = nil })},
}

const accessLost = "terminal interrupted access_lost"

func (f *fixture) startAs(p *wirev1.Principal) {
	f.t.Helper()
	f.must(p, &sessionv1.StartSession{
		Mode: auto, DefaultTier: workspacev1.Tier_TIER_BALANCED, Prompt: &sessionv1.Input{Text: "go"}, Cwd: "src",
	})
}

func TestAccessLostInATurn(t *testing.T) {
	for name, loss := range accessLosses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
				defer f.end()
				f.startAs(loss.of)
				go func() {
					time.Sleep(time.Minute)
					loss.lose(f.world)
				}()
				f.mustRun()
				f.expect("input go", "text working", accessLost)
				<-f.computers.Started()[0].Ended() // with all that it has started
			})
		})
	}
}

func TestAccessLostBeforeATurn(t *testing.T) {
	for name, loss := range accessLosses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{}, nil)
				defer f.end()
				f.startAs(loss.of)
				loss.lose(f.world)
				f.mustRun()
				f.expect("input go", accessLost)
				if n := len(f.computers.Started()); n > 0 {
					t.Errorf("%d agents were started", n)
				}
			})
		})
	}
}

// TestKeysExpireByTheNodesClock runs turns with a limited key, with a node's clock that is ahead of the machine's clock or behind it.
func TestKeysExpireByTheNodesClock(t *testing.T) {
	for name, test := range map[string]struct {
		ahead time.Duration
		want  string
	}{"ahead": {2 * time.Hour, accessLost}, "behind": {-2 * time.Hour, "terminal complete"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Prompt: sayNothing}, func(o *runner.Options) {
					o.Clock = func() time.Time { return time.Now().Add(test.ahead) }
				})
				defer f.end()
				f.startAs(limitedKey)
				f.world.Expire("key_1", time.Now().Add(test.ahead/2))
				f.mustRun()
				f.expect("input go", test.want)
			})
		})
	}
}

// The access is lost while the agent of the turn starts.
func TestAccessLostWhileTheTurnBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: waitForCancel}, nil)
		defer f.end()
		f.startAs(alice)
		f.world.Intercept(func(c entity.Command) error {
			if _, is := c.Message.(*sessionv1.ClaimTurn); is {
				f.world.Refuse("alice", errNotFound)
			}
			return nil
		})
		f.mustRun()
		f.expect("input go", accessLost)
	})
}

// The session has the idle agent of an earlier turn when the access is lost, before the next turn begins or while it does.
func TestAccessLostEndsTheIdleAgent(t *testing.T) {
	for name, hasBegun := range map[string]bool{"before the turn": false, "while the turn begins": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Prompt: sayNothing}, nil)
				defer f.end()
				f.startAs(alice)
				f.mustRun()
				f.send("more")
				lose := func() { f.world.Refuse("alice", errNotFound) }
				if !hasBegun {
					lose()
				}
				f.world.Intercept(func(c entity.Command) error {
					if _, is := c.Message.(*sessionv1.ClaimTurn); is {
						lose()
					}
					return nil
				})
				began := time.Now()
				f.mustRun()
				f.last(t, 1, accessLost)
				<-f.computers.Started()[0].Ended()
				if took := time.Since(began); took > time.Second {
					t.Errorf("the agent ended after %s", took)
				}
			})
		})
	}
}

// sleeper is an agent that sleeps for an hour in its first turn.
func sleeper(f **fixture) *runnertest.Agent {
	return &runnertest.Agent{Prompt: thenEcho(func(ctx context.Context, _ *runnertest.Process, _ acp.PromptRequest) (acp.PromptResponse, error) {
		err := (*f).tools.sessions[0].SleepUntil(ctx, time.Now().Add(time.Hour))
		return done, err
	})}
}

// wake ends the sleep when it is due, as the timer does.
func (f *fixture) wake() {
	at := f.world.Session(sessionID).GetWakeAt()
	time.Sleep(time.Until(time.UnixMilli(at)))
	f.must(entity.Platform(), &sessionv1.WakeSession{At: at})
}

func TestAccessLostInASleep(t *testing.T) {
	const slept = "input The sleep has ended."
	for name, c := range map[string]struct {
		meanwhile func(*fixture)
		want      []string
	}{
		"the next turn ends": {func(*fixture) {}, []string{"terminal sleep", slept, accessLost}},
		"unless a member has taken part since": {
			func(f *fixture) { f.sendAs(bob, "hello"); f.mustRun() },
			[]string{"terminal sleep", "input hello", "text hello", "terminal complete", slept, "text A message of the platform: The sleep has ended.", "terminal complete"},
		},
		"unless the person has the access again": {
			func(f *fixture) { f.world.Refuse("alice", nil) },
			[]string{"terminal sleep", slept, "text A message of the platform: The sleep has ended.", "terminal complete"},
		},
		"a note takes no part": {
			func(f *fixture) {
				f.must(bob, &sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Text: "seen"}})
			},
			[]string{"terminal sleep", "input seen", slept, accessLost},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *fixture
				f = newFixture(t, sleeper(&f), func(o *runner.Options) { o.IdleTimeout = 2 * time.Hour })
				defer f.end()
				f.startAs(alice)
				f.mustRun()
				f.world.Refuse("alice", errNotFound)
				c.meanwhile(f)
				f.wake()
				f.mustRun()
				f.expect(append([]string{"input go"}, c.want...)...)
			})
		})
	}
}

// workForAMinute is an agent that works for a minute, unless it is cancelled.
func workForAMinute(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
	select {
	case <-time.After(time.Minute):
		p.Say(ctx, r, "done")
		return done, nil
	case <-ctx.Done():
		return acp.PromptResponse{StopReason: acp.StopReasonCancelled}, nil
	}
}

// A member who takes part in a running turn becomes its participant. While the access cannot be checked, the turn goes on.
func TestTurnOutlastsAccess(t *testing.T) {
	inApp := func(change func(*appv1.App)) func(*fixture) { return func(f *fixture) { changeApp(change)(f.world) } }
	for name, c := range map[string]struct {
		of        *wirev1.Principal
		meanwhile func(*fixture)
	}{
		"the app sleeps":                       {ofApp, inApp(func(s *appv1.App) { s.Asleep = true })},
		"the app is suspended":                 {ofApp, inApp(func(s *appv1.App) { s.Halted = true })},
		"the app has the key for other scopes": {ofApp, inApp(func(s *appv1.App) { s.Key = &appv1.Key{Number: 2, Scopes: entity.AgentCapabilities()} })},
		"another member has taken part": {alice, func(f *fixture) {
			f.sendAs(bob, "go on")
			f.world.Refuse("alice", errNotFound)
		}},
		"the access cannot be checked": {alice, func(f *fixture) {
			f.world.Refuse("alice", entity.Errorf(entity.Unavailable, "the workspace moves"))
		}},
		"the workspace is suspended": {alice, func(f *fixture) { // its own task interrupts the turn
			f.world.Refuse("alice", entity.Errorf(entity.WorkspaceSuspended, "the workspace is suspended"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, &runnertest.Agent{Prompt: workForAMinute}, nil)
				defer f.end()
				f.startAs(c.of)
				go func() {
					time.Sleep(time.Second)
					c.meanwhile(f)
				}()
				f.mustRun()
				f.last(t, 1, "terminal complete")
			})
		})
	}
}

// A message that waits, because its credential grants other capabilities or because it is a follow-up, neither lets the turn of another
// person go on nor ends it.
func TestMessagesThatWaitLeaveTheTurnAlone(t *testing.T) {
	narrow := &wirev1.Principal{
		Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: "bob", CredentialId: "app_1", Grants: []string{entity.Sessions},
	}
	follow := func(f *fixture) {
		f.must(bob, &sessionv1.SendInput{Input: &sessionv1.Input{
			Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: "later", Behavior: sessionv1.Behavior_BEHAVIOR_FOLLOW_UP,
		}})
	}
	for name, send := range map[string]func(*fixture){
		"other capabilities": func(f *fixture) { f.sendAs(narrow, "later") }, "follow-up": follow,
	} {
		for user, want := range map[string]string{"alice": accessLost, "bob": "terminal complete"} {
			t.Run(name+" and "+user+" is removed", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, &runnertest.Agent{Prompt: workForAMinute}, nil)
					defer f.end()
					f.startAs(alice)
					go func() {
						time.Sleep(time.Second)
						send(f)
						f.world.Refuse(user, errNotFound)
					}()
					f.mustRun()
					f.last(t, 1, want)
				})
			})
		}
	}
}
