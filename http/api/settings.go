package api

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/http/server"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// settings serves the settings of a workspace: its suspension and its default model.
type settings struct{}

func (s settings) routes() []server.Route {
	const suspensionPath = server.WorkspacePath + "/admin/suspension"
	return []server.Route{
		{Method: http.MethodPut, Path: suspensionPath, Scope: server.ScopeAdmin, Summary: "Suspend or resume a workspace",
			Handler: server.Answer(http.StatusOK, server.Checked(CheckSuspension), s.changeSuspension), ChangesSuspended: true},
		{Method: http.MethodGet, Path: suspensionPath, Scope: server.ScopeAdmin, Summary: "Report whether a workspace is suspended",
			Handler: server.Answer(http.StatusOK, server.Nothing, s.readSuspension)},
		{Method: http.MethodPut, Path: server.WorkspacePath + "/default-model", Scope: server.ScopeAdmin, Summary: "Choose the default model for sessions",
			Handler: server.Answer(http.StatusOK, server.Checked(checkTier), s.changeDefaultModel)},
	}
}

// SuspensionRequest is the body of a request to suspend or resume a workspace.
type SuspensionRequest struct {
	Suspended *bool  `json:"suspended"`
	Reason    string `json:"reason"`
}

type suspensionView struct {
	Suspended   bool   `json:"suspended"`
	SuspendedAt int64  `json:"suspendedAt,omitzero"`
	Reason      string `json:"suspensionReason,omitzero"`
}

// CheckSuspension validates a SuspensionRequest.
func CheckSuspension(in *SuspensionRequest) error {
	if in.Suspended == nil {
		return server.Invalid("suspended is required")
	}
	return nil
}

// Command returns the command for the workspace.
func (in SuspensionRequest) Command() workspacev1.Command {
	if *in.Suspended {
		return &workspacev1.Suspend{Reason: in.Reason}
	}
	return &workspacev1.Resume{}
}

func (s settings) readSuspension(c *server.Call, _ server.None) (suspensionView, error) {
	if err := c.Authorize(); err != nil {
		return suspensionView{}, err
	}
	w, err := describePathWorkspace(c)
	return viewSuspension(w.GetSuspension()), err
}

func (s settings) changeSuspension(c *server.Call, in SuspensionRequest) (suspensionView, error) {
	changed, err := server.Ask[*workspacev1.Description](c, workspaceCommand(c, in.Command()))
	return viewSuspension(changed.GetWorkspace().GetSuspension()), err
}

func viewSuspension(s *workspacev1.Suspension) suspensionView {
	return suspensionView{s != nil, s.GetAt(), s.GetReason()}
}

type defaultModel struct {
	Tier string `json:"tier"`
}

func checkTier(in *defaultModel) error {
	if _, ok := ParseName(tierNames, in.Tier); !ok {
		return server.Invalid("tier must be one of frontier, balanced, openai-frontier, openai-max, anthropic-frontier, anthropic-max")
	}
	return nil
}

func (s settings) changeDefaultModel(c *server.Call, in defaultModel) (defaultModel, error) {
	tier, _ := ParseName(tierNames, in.Tier)
	_, err := server.Ask[proto.Message](c, workspaceCommand(c, &workspacev1.SetDefaultModel{Tier: tier}))
	return in, err
}
