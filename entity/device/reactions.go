package device

import (
	"github.com/atelier-run/atelier/entity"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// React returns the commands that follow from an event: a claimed device becomes a machine of the person, or is released
// if the person's account refuses it. The person may remove the machine, which is another stream's event, while a further
// claim is on its way; the device is therefore asked first whether it is still claimed for the machine.
func React(identity string, event devicev1.Event) []entity.Reaction {
	switch e := event.(type) {
	case *devicev1.DeviceClaimed:
		return []entity.Reaction{{
			Condition: &entity.Command{
				Kind: entity.KindDevice, Identity: identity, Message: &devicev1.ConfirmClaim{MachineId: e.GetMachineId()},
			},
			Command: entity.Command{
				Kind: entity.KindUser, Identity: e.GetUserId(), Message: &userv1.RegisterMachine{
					MachineId: e.GetMachineId(), Name: e.GetName(), SyncDeviceId: e.GetSyncDeviceId(),
					ImpersonatorId: e.GetImpersonatorId(),
				},
			},
			Otherwise: &entity.Command{
				Kind: entity.KindDevice, Identity: identity,
				Message: &devicev1.ReleaseDevice{UserId: e.GetUserId(), MachineId: e.GetMachineId()},
			},
		}}
	default:
		return nil
	}
}
