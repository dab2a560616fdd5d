package sandbox

import (
	"slices"
	"testing"
)

// TestWritableFolders verifies that only isolated processes may write to PrivateDir. Each isolated process has a folder of its own there.
func TestWritableFolders(t *testing.T) {
	for _, isUnisolated := range []bool{false, true} {
		s := &spec{Drive: "/drive", Home: Home, Unisolated: isUnisolated}
		got := s.writable()
		if slices.Contains(got, PrivateDir) == isUnisolated {
			t.Errorf("unisolated %t: processes may write to %q", isUnisolated, got)
		}
		if !slices.Contains(got, s.Drive) || !slices.Contains(got, s.Home) {
			t.Errorf("unisolated %t: processes may only write to %q", isUnisolated, got)
		}
	}
}
