// Package computertest holds drivers of computers against what they owe; see computer.Driver.
package computertest

import (
	"context"
	"testing"

	"github.com/atelier-run/atelier/computer"
)

// Test runs a driver that has no computers yet. lose has the computer of a workspace fail its checks, and find has it
// pass them again.
func Test(t *testing.T, driver computer.Driver, lose, find func(workspaceID string)) {
	provision := func(t *testing.T, workspaceID, vmName string) {
		t.Helper()
		machine, err := driver.Provision(t.Context(), workspaceID, vmName)
		if err != nil || machine.VMName != vmName || machine.ImageRef == "" {
			t.Fatalf("%+v, %v", machine, err)
		}
	}
	t.Run("what is not there is not found", func(t *testing.T) {
		if sample, err := driver.Sample(t.Context(), "ws_none"); err == nil {
			t.Errorf("sample %v", sample)
		}
		if err := driver.Release(t.Context(), "ws_none"); err != nil {
			t.Error(err)
		}
	})
	t.Run("provision twice and replace", func(t *testing.T) {
		for _, name := range []string{"vm-1", "vm-1", "vm-2"} {
			provision(t, "ws_1", name)
			check(t, driver, "ws_1")
		}
	})
	t.Run("lost and found", func(t *testing.T) {
		provision(t, "ws_2", "vm-1")
		lose("ws_2")
		if sample, err := driver.Sample(t.Context(), "ws_2"); err == nil {
			t.Errorf("sample %v", sample)
		}
		check(t, driver, "ws_1")
		find("ws_2")
		check(t, driver, "ws_2")
	})
	t.Run("release twice", func(t *testing.T) {
		for range 2 {
			if err := driver.Release(t.Context(), "ws_1"); err != nil {
				t.Error(err)
			}
		}
		provision(t, "ws_1", "vm-3")
		check(t, driver, "ws_1")
	})
	t.Run("nothing outlives its context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = driver.Provision(ctx, "ws_3", "vm-1") // whether it still succeeds is the driver's
		_, _ = driver.Sample(ctx, "ws_3")
	})
}

// check takes a sample, whose figures are in bounds; 0 is what the driver does not know.
func check(t *testing.T, driver computer.Driver, workspaceID string) {
	t.Helper()
	s, err := driver.Sample(t.Context(), workspaceID)
	if err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]bool{
		"processor": s.GetCpuPct() < 0 || s.GetCpuPct() > 100,
		"memory":    s.GetMemUsedMb() < 0 || s.GetMemTotalMb() > 0 && s.GetMemUsedMb() > s.GetMemTotalMb(),
		"disk":      s.GetDiskUsedMb() < 0 || s.GetDiskTotalMb() > 0 && s.GetDiskUsedMb() > s.GetDiskTotalMb(),
	} {
		if bad {
			t.Errorf("%s: %v", what, s)
		}
	}
}
