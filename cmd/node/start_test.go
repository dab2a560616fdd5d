package node

import (
	"strings"
	"testing"
)

// TestStartWithoutDriver starts a node with a driver of computers that cannot be made: the parts that have started are stopped.
func TestStartWithoutDriver(t *testing.T) {
	dir := t.TempDir()
	_, err := Start(t.Context(), Options{Dir: dir, Computers: ComputerOptions{Driver: DockerDriver, Program: "not/absolute", Image: "image"}})
	if err == nil || !strings.Contains(err.Error(), `docker: the option "agent"`) {
		t.Fatalf("the error is %v", err)
	}
	n, err := Start(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatalf("the directory is in use: %v", err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
