// Package device holds the rules of a sync device, which is registered by at most one person.
//
//	free ──ClaimDevice──► a person's ──ReleaseDevice──► free
//	                       └─ClaimDevice, same person: as it was, under a new name
//
// A device's identity is what it calls itself, so that its one stream settles whose it is. The machine of the first claim
// stays until it is released. The platform alone asks.
package device

import (
	"regexp"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// MaxGroups is how many groups of 7 characters a device's identity may have.
const MaxGroups = 16

var (
	errUnknownCommand = entity.Errorf(entity.InvalidRequest, "no command of a device")
	errInUse          = entity.Errorf(entity.DeviceInUse, "the device is registered by another person")
	errForm           = entity.Errorf(entity.InvalidRequest, "syncDeviceId must be 1 to %d groups of 7 characters A-Z and 2-7, joined by hyphens", MaxGroups)
	errNotClaimed     = entity.Errorf(entity.NotFound, "the device is not claimed for the machine")
	errNobody         = entity.Errorf(entity.InvalidRequest, "userId or machineId is empty")
)

// form is the specification's; 15 is MaxGroups without the first.
var form = regexp.MustCompile(`^[A-Z2-7]{7}(-[A-Z2-7]{7}){0,15}$`)

// Zero is the state before the first event.
func Zero(identity string) *devicev1.Device {
	return &devicev1.Device{SyncDeviceId: identity}
}

// Kind describes a device, to which the platform alone sends commands.
var Kind = rules.Kind()

var rules = entity.Rules[*devicev1.Device, devicev1.Command, devicev1.Event]{
	Name: entity.KindDevice, Zero: Zero, Decide: decide, Evolve: Evolve, Reply: Reply, React: React,
}

// Decide authorizes a command and turns it into events. No events and no error: already so, or a query.
// Errors: device_in_use, invalid_request, forbidden.
func Decide(call entity.Call, s *devicev1.Device, c devicev1.Command) ([]devicev1.Event, error) {
	return rules.AuthorizeAndDecide(call, s, c)
}

func decide(call entity.Call, s *devicev1.Device, c devicev1.Command) ([]devicev1.Event, error) {
	switch c := c.(type) {
	case *devicev1.ClaimDevice:
		return claim(call, s, c)
	case *devicev1.ReleaseDevice:
		return release(call, s, c)
	case *devicev1.ConfirmClaim:
		return nil, confirm(s, c)
	case *devicev1.DescribeDevice:
		return nil, nil
	}
	return nil, errUnknownCommand
}

// Evolve is the state after an event.
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

// Reply is the state for every command.
func Reply(_ entity.Call, s *devicev1.Device, c devicev1.Command, _ []devicev1.Event) proto.Message {
	switch c.(type) {
	case *devicev1.ClaimDevice, *devicev1.ReleaseDevice, *devicev1.ConfirmClaim, *devicev1.DescribeDevice:
	}
	return s
}

// Check tells why a text is no device's identity; nil where it is one. Errors: invalid_request.
func Check(syncDeviceID string) *entity.Error {
	if !form.MatchString(syncDeviceID) {
		return errForm
	}
	return nil
}

func claim(call entity.Call, s *devicev1.Device, c *devicev1.ClaimDevice) ([]devicev1.Event, error) {
	if err := Check(call.Identity); err != nil {
		return nil, err
	}
	if err := user.CheckLabel(c.GetName()); err != nil {
		return nil, err
	}
	machine := c.GetMachineId()
	switch {
	case c.GetUserId() == "", machine == "":
		return nil, errNobody
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

// confirm refuses unless the device is claimed for the machine: it may have been released since.
func confirm(s *devicev1.Device, c *devicev1.ConfirmClaim) error {
	if s.GetUserId() == "" || s.GetMachineId() != c.GetMachineId() {
		return errNotClaimed
	}
	return nil
}

// release does nothing where the device has been claimed again meanwhile.
func release(call entity.Call, s *devicev1.Device, c *devicev1.ReleaseDevice) ([]devicev1.Event, error) {
	if s.GetUserId() == "" || s.GetUserId() != c.GetUserId() || s.GetMachineId() != c.GetMachineId() {
		return nil, nil
	}
	return []devicev1.Event{&devicev1.DeviceReleased{At: call.At()}}, nil
}
