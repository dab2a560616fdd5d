package node

import (
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/entity/workspace"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// userLists are operators' alone: nobody is an admin of themselves.
func userLists() map[string]actors.List {
	return map[string]actors.List{
		audit.List:  {Need: entity.Reads(entity.Admin)},
		user.People: {Need: entity.Reads(entity.Admin)},
	}
}

func workspaceLists() map[string]actors.List {
	return map[string]actors.List{
		workspace.MembersList:       {Need: entity.Reads(entity.Sessions, entity.FilesRead), Match: isMember},
		workspace.InvitationsList:   {Need: entity.Reads(entity.Members)},
		workspace.AnchorsList:       {Need: entity.Reads(entity.FilesRead)},
		workspace.BrokenAnchorsList: {Need: entity.Reads(entity.Admin)},
		audit.List:                  {Need: entity.Reads(entity.FilesRead)},
	}
}

// isMember tells whether what is searched for is in a member's email or name, whatever its case.
func isMember(row []byte, search string) bool {
	var member workspacev1.Membership
	if proto.Unmarshal(row, &member) != nil {
		return false
	}
	search = strings.ToLower(search)
	return strings.Contains(strings.ToLower(member.GetEmail()), search) || strings.Contains(strings.ToLower(member.GetName()), search)
}
