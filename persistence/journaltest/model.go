package journaltest

import "testing"

func testModel(t *testing.T, make func(t *testing.T) Harness) {}
