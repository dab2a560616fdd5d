package http

import (
	"google.golang.org/protobuf/proto"

	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

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

func (s *Server) readSuspension(c *call, _ none) (suspensionView, error) {
	if err := c.authorize(); err != nil {
		return suspensionView{}, err
	}
	w, err := c.describeWorkspace()
	return viewSuspension(w.GetSuspension()), err
}

func (s *Server) changeSuspension(c *call, in suspensionRequest) (suspensionView, error) {
	var m proto.Message = &workspacev1.Resume{}
	if *in.Suspended {
		m = &workspacev1.Suspend{Reason: in.Reason}
	}
	changed, err := ask[*workspacev1.Description](c, c.change(m))
	return viewSuspension(changed.GetWorkspace().GetSuspension()), err
}

func viewSuspension(s *workspacev1.Suspension) suspensionView {
	return suspensionView{s != nil, s.GetAt(), s.GetReason()}
}
