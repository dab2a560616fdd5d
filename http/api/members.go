package api

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// members serves the members of a workspace.
type members struct{}

func (m members) routes() []server.Route {
	const memberPath = server.WorkspacePath + "/members/{userId}"
	return []server.Route{
		{Method: http.MethodGet, Path: server.WorkspacePath + "/members", Scope: server.ScopeListMembers, Summary: "List the workspace's members",
			Handler: server.Answer(http.StatusOK, server.DecodeSearch, m.list)},
		{Method: http.MethodPatch, Path: memberPath, Scope: server.ScopeAdmin, Summary: "Change a member's role",
			Handler: server.Answer(http.StatusOK, server.Checked(checkRole), m.changeRole)},
		{Method: http.MethodDelete, Path: memberPath, Scope: server.ScopeAdmin, Summary: "Remove a member",
			Handler: server.Answer(http.StatusOK, server.Nothing, m.remove)},
	}
}

// MemberView is a member of a workspace as JSON.
type MemberView struct {
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
	Member MemberView `json:"member"`
}

type memberRemoved struct {
	Removed bool `json:"removed"`
}

func (m members) list(c *server.Call, in server.Listing) (server.Collection[MemberView], error) {
	return server.ReadList(c, entity.KindWorkspace, "members", in, ViewMember)
}

func checkRole(in *roleRequest) error {
	if _, ok := ParseName(roleNames, in.Role); !ok {
		return server.Invalid("role must be one of owner, editor, viewer")
	}
	return nil
}

// changeRole changes a member's role. When it returns, the locks of a member without the access to change files are gone. Errors:
// not_found, final_owner, billing_user.
func (m members) changeRole(c *server.Call, in roleRequest) (memberChanged, error) {
	role, _ := ParseName(roleNames, in.Role)
	member, err := server.Ask[*workspacev1.Membership](c, workspaceCommand(c, &workspacev1.ChangeRole{UserId: c.Variable("userId"), Role: role}))
	if err != nil {
		return memberChanged{}, err
	}
	return memberChanged{ViewMember(member)}, c.Settle(entity.KindWorkspace, c.Workspace.ID)
}

// remove removes a member. When it returns, the workspace is no longer in the member's list. Errors: final_owner,
// billing_user.
func (m members) remove(c *server.Call, _ server.None) (memberRemoved, error) {
	done, err := server.Ask[*workspacev1.Removed](c, workspaceCommand(c, &workspacev1.RemoveMember{UserId: c.Variable("userId")}))
	if err != nil {
		return memberRemoved{}, err
	}
	return memberRemoved{done.GetRemoved()}, c.Settle(entity.KindWorkspace, c.Workspace.ID)
}

// workspaceCommand returns a command, with an id, that changes the workspace in the path.
func workspaceCommand(c *server.Call, m proto.Message) entity.Command {
	return entity.Command{
		Kind: entity.KindWorkspace, Identity: c.Workspace.ID, ID: c.NewID("cmd_"), Message: m,
	}
}

// ViewMember returns a member as JSON.
func ViewMember(m *workspacev1.Membership) MemberView {
	return MemberView{m.GetUserId(), m.GetEmail(), m.GetName(), roleNames[m.GetRole()], m.GetBilling()}
}
