package runner_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/acp-go-sdk"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/runnertest"
)

func (f *fixture) ask(id string, m proto.Message) {
	f.t.Helper()
	if _, err := f.world.Ask(f.t.Context(), entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(runnertest.WorkspaceID, id), Principal: entity.Platform(), Message: m,
	}); err != nil {
		f.t.Fatalf("%T: %v", m, err)
	}
}

func TestDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: askPermission}, nil)
		defer f.end()
		f.start("go", confirm)
		f.mustRun() // the agent waits for an answer
		child := session.DerivedID(runnertest.WorkspaceID, &sessionv1.Sender{}, "child")
		f.must(entity.Platform(), &sessionv1.AdmitChild{ChildId: child, Mode: sessionv1.Mode_MODE_CONFIRM})
		f.ask(child, &sessionv1.StartSession{ParentId: sessionID, Mode: sessionv1.Mode_MODE_CONFIRM, Prompt: &sessionv1.Input{Text: "part"}})
		foreign := session.DerivedID(runnertest.WorkspaceID, &sessionv1.Sender{}, "foreign")
		f.must(entity.Platform(), &sessionv1.AdmitChild{ChildId: foreign, Mode: sessionv1.Mode_MODE_CONFIRM})
		f.ask(foreign, &sessionv1.StartSession{ParentId: "ses_other", Mode: sessionv1.Mode_MODE_CONFIRM, Prompt: &sessionv1.Input{Text: "part of another"}})
		unborn := session.DerivedID(runnertest.WorkspaceID, &sessionv1.Sender{}, "unborn")
		f.must(entity.Platform(), &sessionv1.AdmitChild{ChildId: unborn, Mode: sessionv1.Mode_MODE_CONFIRM})
		f.ask("ses_other", &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "other", ClientRequestId: "r0"}})
		f.images.Put("ses_other", sum(nil), nil)
		for i := range 120 {
			content := []byte(fmt.Sprint("image ", i))
			var images []*sessionv1.Image
			if i%3 == 0 { // a row of a version that stored images in the journal
				f.world.Put(session.ImageList, session.Key(sessionID, string(sum(content))), &sessionv1.StoredImage{Content: content})
			} else {
				f.images.Put(sessionID, sum(content), content)
				images = []*sessionv1.Image{{Sha256: sum(content), MediaType: "image/png"}}
			}
			f.must(alice, &sessionv1.SendInput{Input: &sessionv1.Input{
				Kind: sessionv1.InputKind_INPUT_KIND_NOTE, Images: images, Text: "note", ClientRequestId: fmt.Sprint("r", i),
				DefaultOwner: []string{"", "root"}[i%2],
			}})
		}
		f.must(alice, &sessionv1.DeleteSession{})
		n := 0
		f.world.Intercept(func(entity.Command) error { // each request but the last fails after some others
			if n++; n%40 == 39 {
				return errors.New("unreachable")
			}
			return nil
		})
		var completion proto.Message
		for completion == nil {
			var err error
			if completion, err = f.runner.Delete(t.Context(), identity, &sessionv1.DeletionTask{SessionId: sessionID}); err != nil && n > 10_000 {
				t.Fatal(err)
			}
		}
		f.world.Intercept(nil)
		f.must(entity.Platform(), completion)
		<-f.computers.Started()[0].Ended()
		if !f.world.Session(sessionID).GetErased() || !f.world.Session(child).GetSealed() || f.world.Session("ses_other").GetSealed() {
			t.Error("the session and its child are not deleted, or another session is")
		}
		if f.world.Session(foreign).GetSealed() || !f.world.Session(unborn).GetSealed() {
			t.Error("the child of another session is deleted, or one that was not created is not")
		}
		for list, want := range map[string]int{
			session.ChildList: 0, session.ImageList: 0, session.TerminalList: 0, session.RequestList: 1, session.SummaryList: 2,
		} {
			if got := f.world.Count(list); got != want {
				t.Errorf("%s has %d rows, want %d", list, got, want)
			}
		}
		if n := f.images.Count(); n != 1 {
			t.Errorf("%d images remain, want that of another session", n)
		}
	})
}

func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, &runnertest.Agent{Prompt: func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
			if textOf(r) == "idle" {
				return done, nil
			}
			return waitForCancel(ctx, p, r)
		}}, nil)
		defer f.end()
		f.ask("ses_3", &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "idle"}})
		if err := f.runAs("ses_3"); err != nil {
			t.Fatal(err)
		}
		f.start("go", auto)
		f.ask("ses_2", &sessionv1.StartSession{Prompt: &sessionv1.Input{Text: "not taken"}})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			time.Sleep(time.Second)
			reply, err := f.runner.Suspend(t.Context(), runnertest.WorkspaceID, &workspacev1.SessionStop{TaskId: "stop", Code: "workspace_suspended"})
			if err != nil || reply.(*workspacev1.ReportSessionsStopped).GetTaskId() != "stop" {
				t.Errorf("%v %v", reply, err)
			}
		}()
		f.mustRun()
		<-stopped
		f.last(t, 1, "terminal interrupted workspace_suspended")
		if f.world.Session("ses_2").GetTurn() == nil {
			t.Error("a turn that no run has taken has ended")
		}
		began := time.Now()
		for _, p := range f.computers.Started() {
			<-p.Ended()
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the agents ended %s after the stop", took)
		}
	})
}

func sum(content []byte) []byte {
	s := sha256.Sum256(content)
	return s[:]
}
