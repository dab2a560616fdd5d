package http

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/device"
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

func checkMachine(in *machineRequest) error {
	if in.Name == "" {
		return invalid("name is required")
	}
	if err := user.CheckLabel(in.Name); err != nil {
		return err
	}
	if in.SyncDeviceID == "" {
		return invalid("syncDeviceId is required")
	}
	if err := device.Check(in.SyncDeviceID); err != nil {
		return err
	}
	return nil
}

// registerMachine claims the device; the person's machine follows from that. It is asked for by itself, too, so that the
// caller gets its answer, also where an earlier claim had none.
func (s *Server) registerMachine(c *call, in machineRequest) (view machineView, made bool, err error) {
	userID, id := c.caller.principal.GetUserId(), s.options.NewID(user.MachinePrefix)
	operator := c.caller.principal.GetImpersonatorId()
	claimed, err := ask[*devicev1.Device](c, c.ofDevice(in.SyncDeviceID, &devicev1.ClaimDevice{
		UserId: userID, MachineId: id, Name: in.Name, ImpersonatorId: operator,
	}))
	if err != nil {
		return view, false, err
	}
	if err := c.settle(entity.KindDevice, in.SyncDeviceID); err != nil {
		return view, false, err
	}
	register := c.changeOwn(&userv1.RegisterMachine{
		MachineId: claimed.GetMachineId(), Name: in.Name, SyncDeviceId: in.SyncDeviceID,
		ImpersonatorId: operator,
	})
	register.Principal = entity.Platform()
	machine, err := ask[*userv1.Machine](c, register)
	if err != nil {
		return view, false, c.unclaim(claimed, err)
	}
	return viewMachine(machine), claimed.GetMachineId() == id, c.settleOwn()
}

// unclaim gives a device up that became no machine, since its person has too many.
func (c *call) unclaim(claimed *devicev1.Device, err error) error {
	var refused *entity.Error
	if !errors.As(err, &refused) || refused.Code != entity.LimitReached {
		return err
	}
	_, failed := ask[proto.Message](c, c.ofDevice(claimed.GetSyncDeviceId(), &devicev1.ReleaseDevice{
		UserId: claimed.GetUserId(), MachineId: claimed.GetMachineId(),
	}))
	if failed != nil {
		return failed
	}
	return err
}

func (c *call) ofDevice(id string, m devicev1.Command) entity.Command {
	return entity.Command{
		Kind: entity.KindDevice, Identity: id, Principal: entity.Platform(), ID: c.server.options.NewID("cmd_"), Message: m,
	}
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
