package user

import (
	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxMachines is the greatest number of active machines of a user.
	MaxMachines = 500
	// MachinePrefix is the prefix of the id of a machine. A ULID follows.
	MachinePrefix = "mch_"
)

var (
	errNoSuchMachine   = entity.Errorf(entity.NotFound, "no such machine")
	errTooManyMachines = entity.Errorf(entity.LimitReached, "at most %d machines can be registered at a time", MaxMachines)
	errMachineID       = entity.Errorf(entity.InvalidRequest, "machineId must be %s and a lower-case ULID", MachinePrefix)
	errNoDevice        = entity.Errorf(entity.InvalidRequest, "syncDeviceId is empty")
)

// registerMachine adds a machine, or renames the active machine of the device. It has no effect for a machine that was
// removed. Errors: invalid_request, limit_reached.
func registerMachine(call entity.Call, s *userv1.User, c *userv1.RegisterMachine) ([]userv1.Event, error) {
	if err := entity.CheckLabel(c.GetName()); err != nil {
		return nil, err
	}
	switch known := machineFor(s, c); {
	case known.GetRemovedAt() != 0, known != nil && known.GetName() == c.GetName():
		return nil, nil
	case known != nil:
		return []userv1.Event{&userv1.MachineRenamed{
			MachineId: known.GetId(), Name: c.GetName(), At: call.At(), UserId: call.Identity,
			SyncDeviceId: known.GetSyncDeviceId(), WorkspaceIds: workspaceIDs(s), ImpersonatorId: c.GetImpersonatorId(),
		}}, nil
	case !hasULID(c.GetMachineId(), MachinePrefix):
		return nil, errMachineID
	case c.GetSyncDeviceId() == "":
		return nil, errNoDevice
	case countActiveMachines(s) >= MaxMachines:
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

// machineFor returns the machine that the command registers again: the machine with its id, or otherwise the active
// machine of its device. It returns nil if there is neither.
func machineFor(s *userv1.User, c *userv1.RegisterMachine) *userv1.Machine {
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

// removeMachine removes a machine. It has no effect if the machine is removed. Errors: not_found.
func removeMachine(call entity.Call, s *userv1.User, c *userv1.RemoveMachine) ([]userv1.Event, error) {
	machine := s.GetMachines()[c.GetMachineId()]
	switch {
	case machine == nil:
		return nil, errNoSuchMachine
	case machine.GetRemovedAt() != 0:
		return nil, nil
	}
	by, impersonator := requester(call)
	return []userv1.Event{&userv1.MachineRemoved{
		MachineId: machine.GetId(), At: call.At(), UserId: call.Identity, SyncDeviceId: machine.GetSyncDeviceId(),
		Name: machine.GetName(), WorkspaceIds: workspaceIDs(s), By: by, ImpersonatorId: impersonator,
	}}, nil
}

// machinesAfter returns the machines after one was removed, without the oldest of too many removed machines.
func machinesAfter(s *userv1.User, e *userv1.MachineRemoved) map[string]*userv1.Machine {
	removed := entity.ShallowCopy(s.GetMachines()[e.GetMachineId()])
	removed.Id, removed.RemovedAt = e.GetMachineId(), e.GetAt()
	return dropOldestEnded(entity.With(s.GetMachines(), e.GetMachineId(), removed), e.GetMachineId(), (*userv1.Machine).GetRemovedAt)
}

func pageOfMachines(s *userv1.User, c *userv1.ListMachines) *userv1.MachinePage {
	reply := &userv1.MachinePage{}
	reply.Machines, reply.More = page(s.GetMachines(), c)
	return reply
}

func countActiveMachines(s *userv1.User) int {
	count := 0
	for _, machine := range s.GetMachines() {
		if machine.GetRemovedAt() == 0 {
			count++
		}
	}
	return count
}
