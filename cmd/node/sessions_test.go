package node

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/builtin"
)

// TestMain makes this program the built-in agent and the process of an app, too: it is the program at computer.ProgramPath.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == builtin.Command {
		os.Exit(builtin.Run(context.Background(), os.Stdin, os.Stdout, os.Stderr, os.Environ(), os.Args[2:]))
	}
	if probe.IsRequested(os.Args) {
		os.Exit(probe.Run(os.Args, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// askSession sends a message to a session of the workspace as its owner.
func (h *home) askSession(id string, m sessionv1.Command) (*sessionv1.Description, error) {
	reply, err := h.Router.Ask(h.Context(), entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(ws, id), Principal: owner, Message: m,
	})
	described, _ := reply.(*sessionv1.Description)
	return described, err
}

// TestSessionOnANode runs whole turns of the built-in agent in a computer, over everything that is between it and the timeline.
func TestSessionOnANode(t *testing.T) {
	h := newComputerHome(t)
	h.launch(agentOf("ses_probe", "", "true")) // skips the test if nothing can run
	id := session.DerivedID(ws, &sessionv1.Sender{}, "test")
	_, err := h.askSession(id, &sessionv1.StartSession{
		DefaultTier: workspacev1.Tier_TIER_BALANCED, Prompt: &sessionv1.Input{Text: "say Hello.\n$ echo one > made.txt; cat made.txt\n"},
	})
	h.check(err)
	described, err := h.askSession(id, &sessionv1.DescribeSession{})
	h.check(err)
	described, err = h.askSession(id, &sessionv1.AwaitInput{Seq: described.GetSession().GetPromptSeq()})
	h.check(err)
	if s := described.GetSession(); s.GetTurnStatus() != sessionv1.TurnStatus_TURN_STATUS_COMPLETE {
		t.Errorf("the session is %v", s)
	}
	texts, outputs := h.written(id)
	if !slices.Contains(texts, "Hello.") || !slices.Contains(outputs, "one\n") && !slices.Contains(outputs, "one") {
		t.Errorf("the timeline has the texts %q and the outputs %q", texts, outputs)
	}
}

// written returns the texts and the outputs of tools in the timeline of a session.
func (h *home) written(id string) (texts, outputs []string) {
	h.Helper()
	reply, err := h.Router.Ask(h.Context(), entity.Command{
		Kind: entity.KindSession, Identity: session.Identity(ws, id), Principal: entity.Platform(), Message: &wirev1.ReadTimeline{Limit: 100, Bytes: 1 << 20},
	})
	h.check(err)
	for _, e := range reply.(*wirev1.Timeline).GetEvents() {
		m, err := entity.Message(e.GetName(), e.GetPayload())
		h.check(err)
		if row := m.(*sessionv1.RowAdded).GetRow(); row.GetText() != nil {
			texts = append(texts, row.GetText().GetText())
		} else if row.GetTool() != nil {
			outputs = append(outputs, row.GetTool().GetOutput())
		}
	}
	return texts, outputs
}

// TestTurnEndsWithItsNode stops a node in the middle of a turn. The turn is interrupted, and does not run again.
func TestTurnEndsWithItsNode(t *testing.T) { testTurnEndsWithItsNode(t) }

func testTurnEndsWithItsNode(t *testing.T, changes ...func(*Options)) {
	h := newComputerHome(t, changes...)
	h.launch(agentOf("ses_probe", "", "true"))
	id := session.DerivedID(ws, &sessionv1.Sender{}, "test")
	_, err := h.askSession(id, &sessionv1.StartSession{
		DefaultTier: workspacev1.Tier_TIER_BALANCED, Prompt: &sessionv1.Input{Text: "say Before.\n$ exec sleep 600\nsay After.\n"},
	})
	h.check(err)
	h.until(func() bool { _, tools := h.written(id); return len(tools) > 0 })
	h.stop()
	h.Node, err = Start(t.Context(), h.options)
	h.check(err)
	h.until(func() bool {
		described, err := h.askSession(id, &sessionv1.DescribeSession{})
		return err == nil && described.GetSession().GetTurn() == nil && described.GetSession().GetWakeAt() == 0
	})
	texts, _ := h.written(id)
	described, err := h.askSession(id, &sessionv1.DescribeSession{})
	h.check(err)
	if status := described.GetSession().GetTurnStatus(); status != sessionv1.TurnStatus_TURN_STATUS_INTERRUPTED || strings.Join(texts, "") != "Before." {
		t.Errorf("the session is %s and has the texts %q", status, texts)
	}
}
