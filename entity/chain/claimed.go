package chain

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// React returns what follows from an event of the entity with that identity: the commands of Next; and for a name that
// was claimed on behalf of an entity that may refuse it, the command that completes the claim, or else releases the name.
func React(identity string, event proto.Message) []entity.Reaction {
	switch e := event.(type) {
	case *slugv1.SlugClaimed:
		if e.GetRename() != nil {
			return []entity.Reaction{completeRename(identity, e)}
		}
	case *devicev1.DeviceClaimed:
		return []entity.Reaction{completeDevice(identity, e)}
	}
	return entity.Reactions(Next(identity, event)...)
}

// completeRename renames the workspace as the person who asked for it. The slug is the workspace's until the slug's own
// reactions are done, in their order; only this reaction releases it before.
func completeRename(slug string, e *slugv1.SlugClaimed) entity.Reaction {
	return entity.Reaction{
		Command: entity.Command{
			Kind: entity.KindWorkspace, Identity: e.GetWorkspaceId(), Principal: e.GetRename().GetPrincipal(),
			Message: &workspacev1.RenameWorkspace{Slug: e.GetSlug(), Name: e.GetRename().GetName()},
		},
		Otherwise: &entity.Command{
			Kind: entity.KindSlug, Identity: slug,
			Message: &slugv1.ReleaseSlug{WorkspaceId: e.GetWorkspaceId(), RefusedClaimId: e.GetRename().GetId()},
		},
	}
}

// completeDevice registers the device as a machine of the person. A person may remove the machine while a further claim of
// theirs is on its way here: the device is asked whether it is still claimed for the machine.
func completeDevice(syncDeviceID string, e *devicev1.DeviceClaimed) entity.Reaction {
	return entity.Reaction{
		Condition: &entity.Command{
			Kind: entity.KindDevice, Identity: syncDeviceID, Message: &devicev1.ConfirmClaim{MachineId: e.GetMachineId()},
		},
		Command: entity.Command{
			Kind: entity.KindUser, Identity: e.GetUserId(), Message: &userv1.RegisterMachine{
				MachineId: e.GetMachineId(), Name: e.GetName(), SyncDeviceId: e.GetSyncDeviceId(),
				ImpersonatorId: e.GetImpersonatorId(),
			},
		},
		Otherwise: &entity.Command{
			Kind: entity.KindDevice, Identity: syncDeviceID,
			Message: &devicev1.ReleaseDevice{UserId: e.GetUserId(), MachineId: e.GetMachineId()},
		},
	}
}
