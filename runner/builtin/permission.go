package builtin

import (
	"context"
	"errors"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/meta"
)

// The options of a permission request.
const (
	allowOnce   acp.PermissionOptionId = "allow_once"
	allowAlways acp.PermissionOptionId = "allow_session"
	reject      acp.PermissionOptionId = "reject"
)

var errNotPermitted = errors.New("this was not permitted")

// permit asks for the permission of a call, in the mode confirm. "Allow for this session" permits all calls of the kind from then
// on. It returns errNotPermitted, or the error of ctx.
func (t *turn) permit(ctx context.Context, kind string, call acp.SessionUpdate) error {
	s := t.session
	if s.mode != meta.ModeConfirm || s.state.Allowed[kind] {
		return nil
	}
	started := call.ToolCall
	t.updates.end() // the texts before the question
	response, err := s.agent.client.RequestPermission(ctx, acp.RequestPermissionRequest{
		SessionId: s.id,
		ToolCall: acp.ToolCallUpdate{
			ToolCallId: started.ToolCallId, Title: &started.Title, Kind: &started.Kind, Status: &started.Status,
			Locations: started.Locations, RawInput: started.RawInput, Content: started.Content,
		},
		Options: []acp.PermissionOption{
			{OptionId: allowOnce, Name: "Allow once", Kind: acp.PermissionOptionKindAllowOnce},
			{OptionId: allowAlways, Name: "Allow for this session", Kind: acp.PermissionOptionKindAllowAlways},
			{OptionId: reject, Name: "Reject", Kind: acp.PermissionOptionKindRejectOnce},
		},
	})
	if stopped := ctx.Err(); stopped != nil {
		return stopped
	}
	if err != nil || response.Outcome.Selected == nil {
		return errNotPermitted
	}
	switch response.Outcome.Selected.OptionId {
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
