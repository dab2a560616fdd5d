package http

import workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"

type suspensionRequest struct {
	Suspended *bool  `json:"suspended"`
	Reason    string `json:"reason"`
}

type suspensionView struct {
	Suspended   bool   `json:"suspended"`
	SuspendedAt int64  `json:"suspendedAt,omitzero"`
	Reason      string `json:"suspensionReason,omitzero"`
}

func checkSuspension(in *suspensionRequest) error {
	if in.Suspended == nil {
		return invalid("suspended is required")
	}
	return nil
}

func (in suspensionRequest) command() workspacev1.Command {
	if *in.Suspended {
		return &workspacev1.Suspend{Reason: in.Reason}
	}
	return &workspacev1.Resume{}
}

func (s *Server) readSuspension(c *call, _ none) (suspensionView, error) {
	if err := c.authorize(); err != nil {
		return suspensionView{}, err
	}
	w, err := c.describeWorkspace()
	return viewSuspension(w.GetSuspension()), err
}

func (s *Server) changeSuspension(c *call, in suspensionRequest) (suspensionView, error) {
	changed, err := ask[*workspacev1.Description](c, c.change(in.command()))
	return viewSuspension(changed.GetWorkspace().GetSuspension()), err
}

func viewSuspension(s *workspacev1.Suspension) suspensionView {
	return suspensionView{s != nil, s.GetAt(), s.GetReason()}
}
