package user

import (
	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxMachines is how many active machines a person may have.
	MaxMachines = 500
	// MachinePrefix begins a machine's id; a lower-case ULID follows.
	MachinePrefix = "mch_"
)

var (
	errNoSuchMachine   = entity.Errorf(entity.NotFound, "no such machine")
	errTooManyMachines = entity.Errorf(entity.LimitReached, "at most %d machines can be registered at a time", MaxMachines)
	errMachineID       = entity.Errorf(entity.InvalidRequest, "machineId must be %s and a lower-case ULID", MachinePrefix)
	errNoDevice        = entity.Errorf(entity.InvalidRequest, "syncDeviceId is empty")
)

func registerMachine(call entity.Call, s *userv1.User, c *userv1.RegisterMachine) ([]userv1.Event, error) {
	if err := CheckLabel(c.GetName()); err != nil {
		return nil, err
	}
	switch known := machineOf(s, c); {
	case known.GetRemovedAt() != 0, known != nil && known.GetName() == c.GetName():
		return nil, nil
	case known != nil:
		return []userv1.Event{&userv1.MachineRenamed{
			MachineId: known.GetId(), Name: c.GetName(), At: call.At(), UserId: call.Identity,
			SyncDeviceId: known.GetSyncDeviceId(), WorkspaceIds: workspaceIDs(s), ImpersonatorId: c.GetImpersonatorId(),
		}}, nil
	case !isULID(c.GetMachineId(), MachinePrefix):
		return nil, errMachineID
	case c.GetSyncDeviceId() == "":
		return nil, errNoDevice
	case activeMachines(s) >= MaxMachines:
		return nil, errTooManyMachines
	}
	return []userv1.Event{&userv1.MachineRegistered{
		UserId: call.Identity, WorkspaceIds: workspaceIDs(s), ImpersonatorId: c.GetImpersonatorId(),
		Machine: &userv1.Machine{
			Id: c.GetMachineId(), Name: c.GetName(), SyncDeviceId: c.GetSyncDeviceId(),
			CreatedAt: call.At(), LastUsedAt: call.At(),
		},
	}}, nil
}

// machineOf is the machine with the command's id, else the active one of its device, else nil.
func machineOf(s *userv1.User, c *userv1.RegisterMachine) *userv1.Machine {
	if known := s.GetMachines()[c.GetMachineId()]; known != nil {
		return known
	}
	for _, machine := range s.GetMachines() {
		if machine.GetRemovedAt() == 0 && machine.GetSyncDeviceId() == c.GetSyncDeviceId() {
			return machine
		}
	}
	return nil
}

func removeMachine(call entity.Call, s *userv1.User, c *userv1.RemoveMachine) ([]userv1.Event, error) {
	machine := s.GetMachines()[c.GetMachineId()]
	switch {
	case machine == nil:
		return nil, errNoSuchMachine
	case machine.GetRemovedAt() != 0:
		return nil, nil
	}
	by, impersonator := asked(call)
	return []userv1.Event{&userv1.MachineRemoved{
		MachineId: machine.GetId(), At: call.At(), UserId: call.Identity, SyncDeviceId: machine.GetSyncDeviceId(),
		Name: machine.GetName(), WorkspaceIds: workspaceIDs(s), By: by, ImpersonatorId: impersonator,
	}}, nil
}

// machinesAfter forgets the machines whose removal is longest ago, where there are too many.
func machinesAfter(s *userv1.User, e *userv1.MachineRemoved) map[string]*userv1.Machine {
	removed := copyOfMachine(s.GetMachines()[e.GetMachineId()])
	removed.Id, removed.RemovedAt = e.GetMachineId(), e.GetAt()
	return forget(entity.With(s.GetMachines(), e.GetMachineId(), removed), e.GetMachineId(), (*userv1.Machine).GetRemovedAt)
}

func pageOfMachines(s *userv1.User, c *userv1.ListMachines) *userv1.MachinePage {
	page := &userv1.MachinePage{}
	page.Machines, page.More = pageOf(s.GetMachines(), c)
	return page
}

func activeMachines(s *userv1.User) int {
	count := 0
	for _, machine := range s.GetMachines() {
		if machine.GetRemovedAt() == 0 {
			count++
		}
	}
	return count
}

func copyOfMachine(machine *userv1.Machine) *userv1.Machine {
	return &userv1.Machine{
		Id:           machine.GetId(),
		Name:         machine.GetName(),
		SyncDeviceId: machine.GetSyncDeviceId(),
		CreatedAt:    machine.GetCreatedAt(),
		LastUsedAt:   machine.GetLastUsedAt(),
		RemovedAt:    machine.GetRemovedAt(),
	}
}
