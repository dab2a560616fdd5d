package computer

import (
	"context"
	"net"

	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// Listen listens on a port of the computer of a workspace; see Host.Listen. The computer is not started while a task needs it
// without processes. Errors: unavailable, and the errors of Host.Listen.
func (f *Fleet) Listen(ctx context.Context, workspaceID string, port int) (net.Listener, error) {
	// A task waits until the listener is open, as it waits until a process has started: the computer would otherwise start
	// after the task has stopped it.
	r, _, err := f.processes.admit(f, Launch{WorkspaceID: workspaceID, Kind: computerv1.ProcessKind_PROCESS_KIND_UNSPECIFIED})
	if err != nil {
		return nil, err
	}
	defer f.processes.remove(r)
	defer close(r.started)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return f.o.Host.Listen(ctx, workspaceID, port)
}

// Dial connects to a TCP port on the loopback interface of the computer of a workspace; see Host.Dial.
func (f *Fleet) Dial(ctx context.Context, workspaceID string, port int) (net.Conn, error) {
	return f.o.Host.Dial(ctx, workspaceID, port)
}
