package slug

import (
	"github.com/atelier-run/atelier/entity"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// React returns the commands that follow from an event. A slug that is claimed for a new workspace creates it.
//
// A slug that is claimed for a renaming renames the workspace on behalf of the person who requested it. If the workspace
// refuses, the slug is released. Until then the slug belongs to the workspace: reactions to one slug run in order, and only
// this one releases it.
func React(identity string, event slugv1.Event) []entity.Reaction {
	e, claimed := event.(*slugv1.SlugClaimed)
	switch {
	case !claimed:
		return nil
	case e.GetRename() == nil:
		return []entity.Reaction{entity.Send(entity.KindWorkspace, e.GetWorkspaceId(), &workspacev1.CreateWorkspace{
			Slug: e.GetSlug(), Name: e.GetWorkspaceName(), CreatorId: e.GetCreatorId(),
			CreatorEmail: e.GetCreatorEmail(), CreatorName: e.GetCreatorName(), ImpersonatorId: e.GetImpersonatorId(),
		})}
	default:
		return []entity.Reaction{{
			Command: entity.Command{
				Kind: entity.KindWorkspace, Identity: e.GetWorkspaceId(), Principal: e.GetRename().GetPrincipal(),
				Message: &workspacev1.RenameWorkspace{Slug: e.GetSlug(), Name: e.GetRename().GetName()},
			},
			Otherwise: &entity.Command{
				Kind: entity.KindSlug, Identity: identity,
				Message: &slugv1.ReleaseSlug{WorkspaceId: e.GetWorkspaceId(), RefusedClaimId: e.GetRename().GetId()},
			},
		}}
	}
}
