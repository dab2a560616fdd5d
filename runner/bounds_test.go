package runner_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/runnertest"
)

// appWith returns an app with grants.
func appWith(grants ...string) *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: "alice", CredentialId: "app_1", Grants: grants}
}

// sendAs sends a message as a principal.
func (f *fixture) sendAs(p *wirev1.Principal, text string) {
	f.t.Helper()
	f.must(p, &sessionv1.SendInput{
		DefaultTier: workspacev1.Tier_TIER_BALANCED, Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_MESSAGE, Text: text},
	})
}

// TestAgentsHaveTheBoundsOfTheirTurns runs turns of a person and of apps in one session. A process works only for turns with the same
// bounds, and a message with others does not reach the agent before a turn of its own.
func TestAgentsHaveTheBoundsOfTheirTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: sayText}, nil)
		defer f.end()
		f.start("one", auto)
		f.sendAs(appWith(entity.Sessions), "two")
		f.send("three")
		f.mustRun()
		f.mustRun()
		f.sendAs(appWith(entity.Sessions), "four")
		f.mustRun()
		f.sendAs(appWith(entity.Sessions, entity.FilesRead), "five")
		f.mustRun()
		f.expect("input one", "input two", "input three", "text one\nthree", "terminal complete", "terminal complete",
			"text two", "terminal complete", "input four", "text four", "terminal complete", "input five", "text five", "terminal complete")
		var got [][]string
		for _, s := range f.tools.sessions {
			got = append(got, s.Capabilities())
		}
		want := [][]string{entity.AgentCapabilities(), {entity.Sessions}, {entity.FilesRead, entity.Sessions}}
		if !slices.EqualFunc(got, want, slices.Equal) || len(f.computers.Started()) != len(want) {
			t.Errorf("%d processes have the capabilities %q, want %q", len(f.computers.Started()), got, want)
		}
	})
}

// TestNotesOfAppsReachTurnsOfPeople has an app send notes to a session that only a person drives. They reach the next turn.
func TestNotesOfAppsReachTurnsOfPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Extended: true, Prompt: sayText}, nil)
		defer f.end()
		f.start("one", auto)
		f.must(appWith(entity.Sessions), &sessionv1.SendInput{Input: &sessionv1.Input{Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Text: "seen"}})
		f.mustRun()
		f.expect("input one", "input seen", "text one\nseen", "terminal complete")
		if waiting := f.world.Session(sessionID).GetPending(); len(waiting) > 0 {
			t.Errorf("%v wait", waiting)
		}
	})
}

// TestOtherAgentsNeedProcesses runs an agent that is not the built-in one with less than processes need.
func TestOtherAgentsNeedProcesses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte("agents:\n  mine: {command: [mine]}\ntiers:\n  balanced: {agent: mine}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := runner.ReadConfig(file, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: sayNothing}, func(o *runner.Options) { o.Config = config })
		defer f.end()
		f.start("one", auto)
		f.mustRun()
		needed := []string{entity.Sessions, entity.FilesRead, entity.FilesWrite, entity.Services}
		for missing := range len(needed) {
			f.sendAs(appWith(slices.Delete(slices.Clone(needed), missing, missing+1)...), "two")
			f.mustRun()
		}
		f.sendAs(appWith(needed...), "three")
		f.mustRun()
		f.expect("input one", "terminal complete", "input two", "terminal complete",
			"input two", "terminal interrupted forbidden", "input two", "terminal interrupted forbidden",
			"input two", "terminal interrupted forbidden", "input three", "terminal complete")
	})
}
