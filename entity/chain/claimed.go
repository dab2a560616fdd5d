package chain

import (
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Claim is a name that was taken for somebody who may yet refuse it.
type Claim struct {
	// Held asks for the name, and By tells from the answer whether it is still held: a claim that was given up since is
	// not followed a second time.
	Held entity.Command
	By   func(proto.Message) bool
	// Then is sent first, once: it carries an id.
	Then entity.Command
	// Otherwise gives the name up again, where Then is refused for good.
	Otherwise entity.Command
}

// Claimed is what follows from an event of the entity with that identity, where that may be refused.
func Claimed(identity string, event proto.Message) (_ Claim, ok bool) {
	switch e := event.(type) {
	case *slugv1.SlugClaimed:
		if e.GetRename() == nil {
			return Claim{}, false
		}
		return Claim{
			Held: entity.Command{Kind: entity.KindSlug, Identity: identity, Message: &slugv1.ResolveSlug{}},
			By: func(reply proto.Message) bool {
				s, _ := reply.(*slugv1.Slug)
				return s.GetWorkspaceId() == e.GetWorkspaceId() && s.GetClaimId() == e.GetRename().GetId()
			},
			Then: entity.Command{
				Kind: entity.KindWorkspace, Identity: e.GetWorkspaceId(), Principal: e.GetRename().GetPrincipal(),
				ID:      "claim:" + e.GetRename().GetId(),
				Message: &workspacev1.RenameWorkspace{Slug: e.GetSlug(), Name: e.GetRename().GetName()},
			},
			Otherwise: entity.Command{
				Kind: entity.KindSlug, Identity: identity, Message: &slugv1.ReleaseSlug{
					WorkspaceId: e.GetWorkspaceId(), RefusedClaimId: e.GetRename().GetId(),
				},
			},
		}, true
	case *devicev1.DeviceClaimed:
		return Claim{
			Held: entity.Command{Kind: entity.KindDevice, Identity: identity, Message: &devicev1.DescribeDevice{}},
			By: func(reply proto.Message) bool {
				d, _ := reply.(*devicev1.Device)
				return d.GetMachineId() == e.GetMachineId()
			},
			Then: entity.Command{
				Kind: entity.KindUser, Identity: e.GetUserId(), Principal: entity.Platform(),
				ID: claimID(entity.KindDevice, identity, e.GetAt()),
				Message: &userv1.RegisterMachine{
					MachineId: e.GetMachineId(), Name: e.GetName(), SyncDeviceId: e.GetSyncDeviceId(),
					ImpersonatorId: e.GetImpersonatorId(),
				},
			},
			Otherwise: entity.Command{
				Kind: entity.KindDevice, Identity: identity,
				Message: &devicev1.ReleaseDevice{UserId: e.GetUserId(), MachineId: e.GetMachineId()},
			},
		}, true
	default:
		return Claim{}, false
	}
}

func claimID(kind, identity string, at int64) string {
	return "claim:" + kind + "/" + identity + ":" + strconv.FormatInt(at, 10)
}
