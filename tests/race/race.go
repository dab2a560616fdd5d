// Package race tells tests whether the race detector instruments them.
package race

import "testing"

// Skip skips a test that is run without the race detector only, and says why. The detector makes such a test several times as long and
// shows nothing in the test that other tests do not show.
func Skip(t testing.TB, why string) {
	t.Helper()
	if enabled {
		t.Skip("not with the race detector: " + why)
	}
}
