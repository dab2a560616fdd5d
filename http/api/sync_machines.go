package api

import (
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/device"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/server"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/account"
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

// register registers a machine of the caller. Errors: the errors of account.RegisterMachine.
func (m machines) register(c *server.Call, in machineRequest) (machineView, bool, error) {
	machine, made, err := account.RegisterMachine(c, in.Name, in.SyncDeviceID)
	return viewMachine(machine), made, err
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
