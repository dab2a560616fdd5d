package account

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
)

// RegisterMachine claims a device for a sync machine of the caller, and reports whether the machine is new. The reaction of the device
// registers the machine with the caller's account. RegisterMachine sends the command to the account too, because the command returns the
// machine or the refusal, even if an earlier request was interrupted after the claim. Errors: device_in_use, limit_reached.
func RegisterMachine(r service.Request, name, deviceID string) (machine *userv1.Machine, made bool, err error) {
	userID, id := r.Sender().Principal.GetUserId(), r.NewID(user.MachinePrefix)
	operator := r.Sender().Principal.GetImpersonatorId()
	claimed, err := service.Send[*devicev1.Device](r, service.PlatformCommand(r, entity.KindDevice, deviceID, &devicev1.ClaimDevice{
		UserId: userID, MachineId: id, Name: name, ImpersonatorId: operator,
	}))
	if err != nil {
		return nil, false, err
	}
	if err := r.Settle(entity.KindDevice, deviceID); err != nil {
		return nil, false, err
	}
	machine, err = service.Send[*userv1.Machine](r, service.PlatformCommand(r, entity.KindUser, userID, &userv1.RegisterMachine{
		MachineId: claimed.GetMachineId(), Name: name, SyncDeviceId: deviceID, ImpersonatorId: operator,
	}))
	if err != nil {
		return nil, false, releaseUnregistered(r, claimed, err)
	}
	return machine, claimed.GetMachineId() == id, service.SettleCaller(r)
}

// releaseUnregistered releases a claimed device if the machine was refused because the caller has too many. It returns the
// refusal.
func releaseUnregistered(r service.Request, claimed *devicev1.Device, err error) error {
	if !entity.HasCode(err, entity.LimitReached) {
		return err
	}
	_, failed := service.Send[proto.Message](r, service.PlatformCommand(r, entity.KindDevice, claimed.GetSyncDeviceId(), &devicev1.ReleaseDevice{
		UserId: claimed.GetUserId(), MachineId: claimed.GetMachineId(),
	}))
	if failed != nil {
		return failed
	}
	return err
}
