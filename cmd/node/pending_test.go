package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/tests/nodetest"
)

// TestPendingTasksAreAwaitedByOneQuery waits for the provisioning of a computer: the actor of the workspace holds one query, and the
// query is answered when the computer is provisioned, although the workspace has moved to another member meanwhile.
func TestPendingTasksAreAwaitedByOneQuery(t *testing.T) {
	h := &home{T: t, dir: t.TempDir()}
	h.check(os.Mkdir(filepath.Dir(h.blockedDrive()), 0o700))
	h.check(os.WriteFile(h.blockedDrive(), nil, 0o600))
	h.options = Options{Dir: h.dir, Wire: true, Members: 2, PendingLimit: testTimeout, Registry: prometheus.NewRegistry()}
	h.Node = nodetest.Start(t, Start, h.options)
	h.ask(entity.KindWorkspace, &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "usr_1"})
	settled := make(chan error, 1)
	go func() { settled <- h.asker(h.options).Settle(t.Context(), entity.KindWorkspace, ws) }()
	h.until(func() bool { return h.heldQueries() == 1 })
	_, err := h.Journal.Move(t.Context(), h.Router.Partition(ws), MemberName(1))
	h.check(err)
	h.check(os.Remove(h.blockedDrive()))
	h.check(<-settled)
	if status := h.workspaceStatus(); status != workspacev1.Status_STATUS_ACTIVE {
		t.Errorf("the workspace is %v after the wait", status)
	}
}

// heldQueries returns the number of queries that the actors of workspaces hold.
func (h *home) heldQueries() (held float64) {
	h.Helper()
	families, err := h.options.Registry.Gather()
	h.check(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "atelier_actor_held_queries" && m.GetLabel()[0].GetValue() == entity.KindWorkspace {
				held += m.GetGauge().GetValue()
			}
		}
	}
	return held
}
