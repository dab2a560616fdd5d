package api

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/device"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
)

// machines serves the sync machines of the caller.
type machines struct{}

func (m machines) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: "/v1/user/sync-machines", Scope: server.ScopeHuman, Idempotent: true, Summary: "Register a sync machine",
			Handler: server.AnswerCreated(server.Checked(checkMachine), m.register)},
		{Method: http.MethodGet, Path: "/v1/user/sync-machines", Scope: server.ScopeHuman, Summary: "List the caller's sync machines",
			Handler: server.Answer(http.StatusOK, server.DecodePage, m.list)},
		{Method: http.MethodDelete, Path: "/v1/user/sync-machines/{machineId}", Scope: server.ScopeHuman, Idempotent: true, Summary: "Remove a sync machine",
			Handler: server.Answer(http.StatusOK, server.Nothing, m.remove)},
	}
}

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
		return server.Invalid("name is required")
	}
	if err := user.CheckLabel(in.Name); err != nil {
		return err
	}
	if in.SyncDeviceID == "" {
		return server.Invalid("syncDeviceId is required")
	}
	if err := device.Check(in.SyncDeviceID); err != nil {
		return err
	}
	return nil
}

// register claims the device. The reaction of the device registers the machine with the caller's account. The command to the account is
// sent from here too, because it returns the machine or the refusal, even if an earlier request was interrupted after the
// claim. Errors: device_in_use, limit_reached.
func (m machines) register(c *server.Call, in machineRequest) (view machineView, made bool, err error) {
	userID, id := c.Caller.Principal.GetUserId(), c.NewID(user.MachinePrefix)
	operator := c.Caller.Principal.GetImpersonatorId()
	claimed, err := server.Ask[*devicev1.Device](c, deviceCommand(c, in.SyncDeviceID, &devicev1.ClaimDevice{
		UserId: userID, MachineId: id, Name: in.Name, ImpersonatorId: operator,
	}))
	if err != nil {
		return view, false, err
	}
	if err := c.Settle(entity.KindDevice, in.SyncDeviceID); err != nil {
		return view, false, err
	}
	register := service.CallerCommand(c, &userv1.RegisterMachine{
		MachineId: claimed.GetMachineId(), Name: in.Name, SyncDeviceId: in.SyncDeviceID,
		ImpersonatorId: operator,
	})
	register.Principal = entity.Platform()
	machine, err := server.Ask[*userv1.Machine](c, register)
	if err != nil {
		return view, false, releaseUnregistered(c, claimed, err)
	}
	return viewMachine(machine), claimed.GetMachineId() == id, service.SettleCaller(c)
}

// releaseUnregistered releases a claimed device if the machine was refused because the caller has too many. It returns the
// refusal.
func releaseUnregistered(c *server.Call, claimed *devicev1.Device, err error) error {
	if !entity.HasCode(err, entity.LimitReached) {
		return err
	}
	_, failed := server.Ask[proto.Message](c, deviceCommand(c, claimed.GetSyncDeviceId(), &devicev1.ReleaseDevice{
		UserId: claimed.GetUserId(), MachineId: claimed.GetMachineId(),
	}))
	if failed != nil {
		return failed
	}
	return err
}

func deviceCommand(c *server.Call, id string, m devicev1.Command) entity.Command {
	return entity.Command{
		Kind: entity.KindDevice, Identity: id, Principal: entity.Platform(), ID: c.NewID("cmd_"), Message: m,
	}
}

func (m machines) list(c *server.Call, in server.Listing) (server.Collection[machineView], error) {
	found, err := server.Ask[*userv1.MachinePage](c, entity.Command{
		Kind: entity.KindUser, Identity: c.Caller.Principal.GetUserId(),
		Message: &userv1.ListMachines{After: in.After, Limit: in.Limit},
	})
	items := make([]machineView, len(found.GetMachines()))
	for i, machine := range found.GetMachines() {
		items[i] = viewMachine(machine)
	}
	return server.Page(c, in, items, nextID(found.GetMachines(), found.GetMore())), err
}

// remove removes a machine of the caller. When it returns, another person can register the device. Errors: not_found.
func (m machines) remove(c *server.Call, _ server.None) (machineRemoved, error) {
	machine, err := server.Ask[*userv1.Machine](c, service.CallerCommand(c, &userv1.RemoveMachine{MachineId: c.Variable("machineId")}))
	if err != nil {
		return machineRemoved{}, err
	}
	return machineRemoved{true, machine.GetId(), machine.GetRemovedAt()}, service.SettleCaller(c)
}

func viewMachine(m *userv1.Machine) machineView {
	return machineView{m.GetId(), m.GetName(), m.GetSyncDeviceId(), m.GetCreatedAt(), m.GetLastUsedAt(), m.GetRemovedAt()}
}
