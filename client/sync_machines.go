package client

import (
	"context"
	"net/http"
)

// SyncMachine is a device of the caller that mirrors workspaces.
type SyncMachine struct {
	MachineID    string `json:"machineId"`
	Name         string `json:"name"`
	SyncDeviceID string `json:"syncDeviceId"`
	CreatedAt    int64  `json:"createdAt"`
	LastUsedAt   int64  `json:"lastUsedAt"`
	RemovedAt    int64  `json:"removedAt,omitempty"`
}

// NewSyncMachine is the input of RegisterSyncMachine.
type NewSyncMachine struct {
	Name         string `json:"name"`
	SyncDeviceID string `json:"syncDeviceId"`
}

// SyncMachineRemoved describes a removed machine. RemovedAt is the time of its first removal.
type SyncMachineRemoved struct {
	OK        bool   `json:"ok"`
	MachineID string `json:"machineId"`
	RemovedAt int64  `json:"removedAt"`
}

const machinesPath = "/v1/user/sync-machines"

// SyncMachines returns the sync machines of the caller.
func (c *Client) SyncMachines() Collection[SyncMachine] {
	return Collection[SyncMachine]{c, machinesPath, nil}
}

// RegisterSyncMachine registers a device as a machine of the caller. A device that is registered again gets the new name.
// Codes: device_in_use.
func (c *Client) RegisterSyncMachine(ctx context.Context, in NewSyncMachine) (SyncMachine, error) {
	return call[SyncMachine](ctx, c, request{method: http.MethodPost, path: machinesPath, in: in, idempotent: true})
}

// RemoveSyncMachine removes a machine of the caller. Codes: not_found.
func (c *Client) RemoveSyncMachine(ctx context.Context, machineID string) (SyncMachineRemoved, error) {
	return call[SyncMachineRemoved](ctx, c, request{method: http.MethodDelete, path: machinesPath + "/" + segment(machineID), idempotent: true})
}
