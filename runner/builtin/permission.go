package builtin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/builtin/runbook"
	"github.com/atelier-run/atelier/runner/meta"
)

// The options of a permission request.
const (
	allowOnce   acp.PermissionOptionId = "allow_once"
	allowAlways acp.PermissionOptionId = "allow_session"
	reject      acp.PermissionOptionId = "reject"
)

// permissions are the options of every request.
var permissions = []acp.PermissionOption{
	{OptionId: allowOnce, Name: "Allow once", Kind: acp.PermissionOptionKindAllowOnce},
	{OptionId: allowAlways, Name: "Allow for this session", Kind: acp.PermissionOptionKindAllowAlways},
	{OptionId: reject, Name: "Reject", Kind: acp.PermissionOptionKindRejectOnce},
}

var errNotPermitted = errors.New("this was not permitted")

// permit asks for the permission of a call, in the mode confirm. "Allow for this session" permits all calls of the kind from then
// on. It returns errNotPermitted, or the error of ctx.
func (t *turn) permit(ctx context.Context, kind string, call acp.SessionUpdate) error {
	s := t.session
	if s.mode != meta.ModeConfirm || s.state.Allowed[kind] {
		return nil
	}
	if running := s.state.Runbook.Running; running != nil && running.Permission == runbook.Granted {
		return nil
	}
	if err := t.savePermission(runbook.Requested); err != nil {
		return err
	}
	started := call.ToolCall
	t.updates.end() // the texts before the question
	response, err := s.agent.client.RequestPermission(ctx, acp.RequestPermissionRequest{
		SessionId: s.id,
		ToolCall: acp.ToolCallUpdate{
			ToolCallId: started.ToolCallId, Title: &started.Title, Kind: &started.Kind, Status: &started.Status,
			Locations: started.Locations, RawInput: started.RawInput, Content: started.Content,
		},
		Options: permissions,
	})
	if stopped := ctx.Err(); stopped != nil {
		return stopped
	}
	if err := t.savePermission(""); err != nil {
		return err
	}
	if err != nil || response.Outcome.Selected == nil {
		return errNotPermitted
	}
	return s.decide(kind, response.Outcome.Selected.OptionId)
}

// decide carries out a person's decision. It returns errNotPermitted if that is no permission.
func (s *session) decide(kind string, option acp.PermissionOptionId) error {
	switch option {
	case allowAlways:
		if s.state.Allowed == nil {
			s.state.Allowed = map[string]bool{}
		}
		s.state.Allowed[kind] = true
		return nil
	case allowOnce:
		return nil
	}
	return errNotPermitted
}

// savePermission saves the permission of the step of a runbook, so that the next process knows that the step has had no effect if
// this one is lost while it waits.
func (t *turn) savePermission(p runbook.Permission) error {
	running := t.session.state.Runbook.Running
	if running == nil {
		return nil // the call is a model's
	}
	running.Permission = p
	return t.save()
}

// decideLost continues a runbook by the person's answer, if the process that had requested a permission was lost, and returns
// the other inputs. Any other input of a person abandons the runbook, as it does while the process waits.
func (t *turn) decideLost(inputs []input) (rest []input, err error) {
	state := &t.session.state.Runbook
	for i, in := range inputs {
		if in.Kind != meta.KindAnswer {
			continue
		}
		chosen := slices.IndexFunc(permissions, func(o acp.PermissionOption) bool {
			return strings.EqualFold(strings.TrimSpace(in.text), o.Name)
		})
		if chosen < 0 {
			continue
		}
		step := *state.Running
		kind := "shell"
		if step.Kind == runbook.Write {
			kind = "files"
		}
		if err := t.session.decide(kind, permissions[chosen].OptionId); err != nil {
			state.Abandon()
			return nil, failure(meta.CodeRunbookFailed, "%s", &runbook.Failure{Step: step, Reason: err.Error()})
		}
		state.Grant()
		return slices.Delete(slices.Clone(inputs), i, i+1), nil
	}
	state.Abandon()
	return inputs, nil
}
