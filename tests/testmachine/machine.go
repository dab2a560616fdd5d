// Package testmachine tells tests the abilities of the machine that runs them.
package testmachine

import (
	"os"
	"testing"
)

// Lacks ends a test because the machine lacks the thing that the reason names. The test is skipped, but in continuous integration,
// where a test that is left out would be missed, it fails.
func Lacks(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// Excludes skips a test that the machine's kernel excludes, also in continuous integration, because nothing that can be installed changes
// the kernel.
func Excludes(t testing.TB, reason string) {
	t.Helper()
	t.Skip(reason)
}
