package client

import (
	"context"
	"net/http"
)

// SyncMachine is a device of the caller's that mirrors workspaces.
type SyncMachine struct {
	MachineID    string `json:"machineId"`
	Name         string `json:"name"`
	SyncDeviceID string `json:"syncDeviceId"`
	CreatedAt    int64  `json:"createdAt"`
	LastUsedAt   int64  `json:"lastUsedAt"`
	RemovedAt    int64  `json:"removedAt,omitempty"`
}

// NewSyncMachine is a device to be registered. Registered again, it gets the new name.
type NewSyncMachine struct {
	Name         string `json:"name"`
	SyncDeviceID string `json:"syncDeviceId"`
}

// SyncMachineRemoved tells which machine was removed, and when first.
type SyncMachineRemoved struct {
	OK        bool   `json:"ok"`
	MachineID string `json:"machineId"`
	RemovedAt int64  `json:"removedAt"`
}

const machinesPath = "/v1/user/sync-machines"

// SyncMachines are the caller's.
func (c *Client) SyncMachines() Collection[SyncMachine] {
	return Collection[SyncMachine]{c, machinesPath, nil}
}

// RegisterSyncMachine makes a device known. Codes: device_in_use.
func (c *Client) RegisterSyncMachine(ctx context.Context, in NewSyncMachine) (SyncMachine, error) {
	return call[SyncMachine](ctx, c, request{method: http.MethodPost, path: machinesPath, in: in, idempotent: true})
}

// RemoveSyncMachine forgets a device and detaches what it mirrors.
func (c *Client) RemoveSyncMachine(ctx context.Context, machineID string) (SyncMachineRemoved, error) {
	return call[SyncMachineRemoved](ctx, c, request{method: http.MethodDelete, path: machinesPath + "/" + segment(machineID), idempotent: true})
}
