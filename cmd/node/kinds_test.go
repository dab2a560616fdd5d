package node_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/entity/kinds"
	"github.com/atelier-run/atelier/tests/nodetest"
)

// TestNodeRunsEveryKind verifies that a node runs every registered kind, and that the metrics of its actors have a series for
// each kind from the start.
func TestNodeRunsEveryKind(t *testing.T) {
	registry := prometheus.NewRegistry()
	nodetest.Start(t, node.Start, node.Options{Dir: t.TempDir(), Registry: registry})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	labelled := map[string]map[string]bool{}
	for _, family := range families {
		labels := map[string]bool{}
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "kind" {
					labels[label.GetValue()] = true
				}
			}
		}
		labelled[family.GetName()] = labels
	}
	for _, name := range []string{"atelier_actor_commands_total", "atelier_actor_active", "atelier_actor_decide_seconds", "atelier_actor_mailbox_messages"} {
		for _, k := range kinds.All {
			if !labelled[name][k.Name] {
				t.Errorf("%s has no series for kind %s", name, k.Name)
			}
		}
	}
}
