// Package computertest is the conformance suite for implementations of computer.Driver and computer.Host.
package computertest

import (
	"context"
	"testing"

	"github.com/atelier-run/atelier/computer"
)

// Test tests a driver that has no computers. disable makes Sample fail for the computer of a workspace, and enable makes it
// succeed again.
func Test(t *testing.T, driver computer.Driver, disable, enable func(workspaceID string)) {
	provision := func(t *testing.T, workspaceID, vmName string) {
		t.Helper()
		machine, err := driver.Provision(t.Context(), workspaceID, vmName)
		if err != nil || machine.VMName != vmName || machine.ImageRef == "" {
			t.Fatalf("Provision returned %+v, %v", machine, err)
		}
	}
	t.Run("computer that does not exist", func(t *testing.T) {
		if sample, err := driver.Sample(t.Context(), "ws_none"); err == nil {
			t.Errorf("Sample returned %v, want an error", sample)
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
	t.Run("computer that is lost and found again", func(t *testing.T) {
		provision(t, "ws_2", "vm-1")
		disable("ws_2")
		if sample, err := driver.Sample(t.Context(), "ws_2"); err == nil {
			t.Errorf("Sample returned %v, want an error", sample)
		}
		check(t, driver, "ws_1")
		enable("ws_2")
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
	t.Run("canceled context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _ = driver.Provision(ctx, "ws_3", "vm-1") // may succeed, but must return
		_, _ = driver.Sample(ctx, "ws_3")
	})
}

// check samples a computer and verifies that the values are in range. 0 means unknown.
func check(t *testing.T, driver computer.Driver, workspaceID string) {
	t.Helper()
	s, err := driver.Sample(t.Context(), workspaceID)
	if err != nil {
		t.Fatal(err)
	}
	for name, invalid := range map[string]bool{
		"processor": s.GetCpuPct() < 0 || s.GetCpuPct() > 100,
		"memory":    s.GetMemUsedMb() < 0 || s.GetMemTotalMb() > 0 && s.GetMemUsedMb() > s.GetMemTotalMb(),
		"disk":      s.GetDiskUsedMb() < 0 || s.GetDiskTotalMb() > 0 && s.GetDiskUsedMb() > s.GetDiskTotalMb(),
	} {
		if invalid {
			t.Errorf("invalid value for %s: %v", name, s)
		}
	}
}
