package http

import (
	"regexp"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

type machineRequest struct {
	Name         string `json:"name"`
	SyncDeviceID string `json:"syncDeviceId"`
}

type machineView struct {
	MachineID    string `json:"machineId"`
	Name         string `json:"name"`
	SyncDeviceID string `json:"syncDeviceId"`
	CreatedAt    int64  `json:"createdAt"`
	LastUsedAt   int64  `json:"lastUsedAt"`
	RemovedAt    int64  `json:"removedAt,omitzero"`
}

type machineRemoved struct {
	OK        bool   `json:"ok"`
	MachineID string `json:"machineId"`
	RemovedAt int64  `json:"removedAt"`
}

// maxDeviceID bounds a device's id, which is 63 characters of eight groups today.
const maxDeviceID = 255

// deviceID is the specification's form of a device's id.
var deviceID = regexp.MustCompile(`^[A-Z2-7]{7}(-[A-Z2-7]{7})*$`)

func checkMachine(in *machineRequest) error {
	if in.Name == "" {
		return invalid("name is required")
	}
	if err := user.CheckLabel(in.Name); err != nil {
		return err
	}
	switch {
	case in.SyncDeviceID == "":
		return invalid("syncDeviceId is required")
	case len(in.SyncDeviceID) > maxDeviceID:
		return invalid("syncDeviceId must have at most %d characters", maxDeviceID)
	case !deviceID.MatchString(in.SyncDeviceID):
		return invalid("syncDeviceId must be groups of 7 of A-Z and 2-7, joined by hyphens")
	}
	return nil
}

// registerMachine claims the device; the person's machine follows from that. It is asked for by itself, too, so that the
// caller gets its answer, also where an earlier claim had none.
func (s *Server) registerMachine(c *call, in machineRequest) (view machineView, made bool, err error) {
	userID, id := c.caller.principal.GetUserId(), s.options.NewID(user.MachinePrefix)
	device, err := ask[*devicev1.Device](c, entity.Command{
		Kind: entity.KindDevice, Identity: in.SyncDeviceID, Principal: entity.Platform(), ID: s.options.NewID("cmd_"),
		Message: &devicev1.ClaimDevice{UserId: userID, MachineId: id, Name: in.Name},
	})
	if err != nil {
		return view, false, err
	}
	if err := c.settle(entity.KindDevice, in.SyncDeviceID); err != nil {
		return view, false, err
	}
	register := c.changeOwn(&userv1.RegisterMachine{MachineId: device.GetMachineId(), Name: in.Name, SyncDeviceId: in.SyncDeviceID})
	register.Principal = entity.Platform()
	machine, err := ask[*userv1.Machine](c, register)
	if err != nil {
		return view, false, err
	}
	return viewMachine(machine), device.GetMachineId() == id, c.settleOwn()
}

func (s *Server) listMachines(c *call, in listing) (collection[machineView], error) {
	found, err := ask[*userv1.MachinePage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.caller.principal.GetUserId(),
		Message: &userv1.ListMachines{After: in.after, Limit: in.limit},
	})
	items := make([]machineView, len(found.GetMachines()))
	for i, machine := range found.GetMachines() {
		items[i] = viewMachine(machine)
	}
	return page(c, in, items, idAfter(found.GetMachines(), found.GetMore())), err
}

// removeMachine answers when the device is free for whoever registers it next.
func (s *Server) removeMachine(c *call, _ none) (machineRemoved, error) {
	machine, err := ask[*userv1.Machine](c, c.changeOwn(&userv1.RemoveMachine{MachineId: c.variable("machineId")}))
	if err != nil {
		return machineRemoved{}, err
	}
	return machineRemoved{true, machine.GetId(), machine.GetRemovedAt()}, c.settleOwn()
}

func viewMachine(m *userv1.Machine) machineView {
	return machineView{m.GetId(), m.GetName(), m.GetSyncDeviceId(), m.GetCreatedAt(), m.GetLastUsedAt(), m.GetRemovedAt()}
}
