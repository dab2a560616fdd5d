// Package device implements the rules of sync devices. A device is registered to at most one person at a time.
//
//	free ──ClaimDevice──► claimed by a person ──ReleaseDevice──► free
//	                       └─ClaimDevice by the same person: renamed
//
// The identity of the entity is the sync device id that the device chose, so its stream orders concurrent claims and the
// first one wins. A repeated claim keeps the machine id of the first one until the device is released. Only the platform
// sends commands to it.
package device

import (
	"regexp"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// MaxGroups is the greatest number of groups of 7 characters in a sync device id.
const MaxGroups = 16

var (
	errInUse      = entity.Errorf(entity.DeviceInUse, "the device is registered by another person")
	errForm       = entity.Errorf(entity.InvalidRequest, "syncDeviceId must be 1 to %d groups of 7 characters A-Z and 2-7, joined by hyphens", MaxGroups)
	errNotClaimed = entity.Errorf(entity.NotFound, "the device is not claimed for the machine")
	errNoClaimant = entity.Errorf(entity.InvalidRequest, "userId or machineId is empty")
)

// form is the form of sync device ids (specification); 15 is MaxGroups without the first group.
var form = regexp.MustCompile(`^[A-Z2-7]{7}(-[A-Z2-7]{7}){0,15}$`)

// Zero returns the state before the first event.
func Zero(identity string) *devicev1.Device {
	return &devicev1.Device{SyncDeviceId: identity}
}

// Kind describes devices to the runtime.
var Kind = Rules.Kind()

// Rules are the rules of devices.
var Rules = entity.Rules[*devicev1.Device, devicev1.Command, devicev1.Event]{
	Name: entity.KindDevice, Zero: Zero, Decide: Decide, Evolve: Evolve, Reply: Reply, React: React,
}

// Decide turns an authorized command into events. It returns no events and no error if the state is already as the
// command requires, or if the command is a query. Errors: device_in_use, invalid_request.
func Decide(call entity.Call, s *devicev1.Device, c devicev1.Command) ([]devicev1.Event, error) {
	switch c := c.(type) {
	case *devicev1.ClaimDevice:
		return claim(call, s, c)
	case *devicev1.ReleaseDevice:
		return release(call, s, c)
	case *devicev1.ConfirmClaim:
		return nil, checkClaimed(s, c)
	case *devicev1.DescribeDevice:
		return nil, nil
	}
	return nil, entity.UnknownCommand(entity.KindDevice, c)
}

// Evolve returns the state after an event.
func Evolve(s *devicev1.Device, e devicev1.Event) *devicev1.Device {
	switch e := e.(type) {
	case *devicev1.DeviceClaimed:
		return &devicev1.Device{
			SyncDeviceId: e.GetSyncDeviceId(), UserId: e.GetUserId(), MachineId: e.GetMachineId(), Name: e.GetName(),
		}
	case *devicev1.DeviceReleased:
		return Zero(s.GetSyncDeviceId())
	}
	return s
}

// React returns the commands that follow from an event. A claimed device becomes a machine of the user; if the user refuses
// it, the device is released. The user may have removed the machine while a repeated claim was on its way, so the condition
// ConfirmClaim first confirms that the device is still claimed for the machine.
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

// Reply returns the state for every command.
func Reply(_ entity.Call, s *devicev1.Device, c devicev1.Command, _ []devicev1.Event) proto.Message {
	switch c.(type) {
	case *devicev1.ClaimDevice, *devicev1.ReleaseDevice, *devicev1.ConfirmClaim, *devicev1.DescribeDevice:
	}
	return s
}

// Check returns an error unless a text may be a sync device id. Errors: invalid_request.
func Check(syncDeviceID string) *entity.Error {
	if !form.MatchString(syncDeviceID) {
		return errForm
	}
	return nil
}

// claim registers the device to a person, or renames it. Errors: invalid_request, device_in_use.
func claim(call entity.Call, s *devicev1.Device, c *devicev1.ClaimDevice) ([]devicev1.Event, error) {
	if err := Check(call.Identity); err != nil {
		return nil, err
	}
	if err := entity.CheckLabel(c.GetName()); err != nil {
		return nil, err
	}
	machine := c.GetMachineId()
	switch {
	case c.GetUserId() == "", machine == "":
		return nil, errNoClaimant
	case s.GetUserId() == c.GetUserId() && s.GetName() == c.GetName():
		return nil, nil
	case s.GetUserId() == c.GetUserId():
		machine = s.GetMachineId()
	case s.GetUserId() != "":
		return nil, errInUse
	}
	return []devicev1.Event{&devicev1.DeviceClaimed{
		SyncDeviceId: call.Identity, UserId: c.GetUserId(), MachineId: machine, Name: c.GetName(), At: call.At(),
		ImpersonatorId: c.GetImpersonatorId(),
	}}, nil
}

// checkClaimed returns not_found unless the device is claimed for the machine of the command.
func checkClaimed(s *devicev1.Device, c *devicev1.ConfirmClaim) error {
	if s.GetUserId() == "" || s.GetMachineId() != c.GetMachineId() {
		return errNotClaimed
	}
	return nil
}

// release has no effect if the device is no longer claimed for the person and machine of the command.
func release(call entity.Call, s *devicev1.Device, c *devicev1.ReleaseDevice) ([]devicev1.Event, error) {
	if s.GetUserId() == "" || s.GetUserId() != c.GetUserId() || s.GetMachineId() != c.GetMachineId() {
		return nil, nil
	}
	return []devicev1.Event{&devicev1.DeviceReleased{At: call.At()}}, nil
}
