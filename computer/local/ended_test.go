package local_test

import (
	"context"
	"errors"
	"testing"
)

// TestEndedContext begins nothing for a caller that has gone, also while the computer runs without any other caller.
func TestEndedContext(t *testing.T) {
	d, _ := openHost(t, nil)
	if _, err := d.Provision(t.Context(), "ws_1", "vm-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Listen(t.Context(), "ws_1", 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 50 {
		l, err := d.Listen(ctx, "ws_1", 0)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, %v", l, err)
		}
		if err := d.Freeze(ctx, "ws_1", true); !errors.Is(err, context.Canceled) {
			t.Fatalf("Freeze: %v", err)
		}
	}
}
