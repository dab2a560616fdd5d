package http

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

type memberView struct {
	ID            string `json:"id"`
	Email         string `json:"email"`
	Name          string `json:"name,omitzero"`
	Role          string `json:"role"`
	IsBillingUser bool   `json:"isBillingUser"`
}

type roleRequest struct {
	Role string `json:"role"`
}

type memberChanged struct {
	Member memberView `json:"member"`
}

type memberRemoved struct {
	Removed bool `json:"removed"`
}

func (s *Server) listMembers(c *call, in listing) (collection[memberView], error) {
	return readList(c, entity.KindWorkspace, "members", in, viewMember)
}

func checkRole(in *roleRequest) error {
	if _, ok := named(roleNames, in.Role); !ok {
		return invalid("role must be one of owner, editor, viewer")
	}
	return nil
}

// changeRole answers when the locks of somebody who may change no file any more are gone, too.
func (s *Server) changeRole(c *call, in roleRequest) (memberChanged, error) {
	role, _ := named(roleNames, in.Role)
	member, err := ask[*workspacev1.Membership](c, c.change(&workspacev1.ChangeRole{UserId: c.variable("userId"), Role: role}))
	if err != nil {
		return memberChanged{}, err
	}
	return memberChanged{viewMember(member)}, c.settle(entity.KindWorkspace, c.workspace.id)
}

// removeMember answers when the person's own list has forgotten the workspace, too.
func (s *Server) removeMember(c *call, _ none) (memberRemoved, error) {
	done, err := ask[*workspacev1.Removed](c, c.change(&workspacev1.RemoveMember{UserId: c.variable("userId")}))
	if err != nil {
		return memberRemoved{}, err
	}
	return memberRemoved{done.GetRemoved()}, c.settle(entity.KindWorkspace, c.workspace.id)
}

// change is a command that changes the path's workspace.
func (c *call) change(m proto.Message) entity.Command {
	return entity.Command{
		Kind: entity.KindWorkspace, Identity: c.workspace.id, ID: c.server.options.NewID("cmd_"), Message: m,
	}
}

func viewMember(m *workspacev1.Membership) memberView {
	return memberView{m.GetUserId(), m.GetEmail(), m.GetName(), roleNames[m.GetRole()], m.GetBilling()}
}
