package node_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/cmd/node"
)

// metricNames are those of a node's registry, also of metrics that have no value yet.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	n, err := node.Start(t.Context(), node.Options{Dir: t.TempDir(), Registry: registry})
	if err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() { registry.Describe(descriptions); close(descriptions) }()
	names := map[string]bool{}
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descriptions {
		names[name.FindStringSubmatch(d.String())[1]] = true
	}
	if err := n.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	return names
}

// TestAlerts holds the alert rules against the metrics that a node has.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr string
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	names, used := metricNames(t), map[string]bool{}
	metric := regexp.MustCompile(`\batelier_[a-z_]+`)
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["action"] == "" {
				t.Errorf("the alert %+v is incomplete", r)
			}
			found := metric.FindAllString(r.Expr, -1)
			if len(found) == 0 {
				t.Errorf("%s is about no metric", r.Alert)
			}
			for _, name := range found {
				used[name] = true
				if !names[name] && !names[strings.TrimSuffix(name, "_bucket")] {
					t.Errorf("%s is about %s, which a node does not have", r.Alert, name)
				}
			}
		}
	}
	if !used["atelier_reactor_parked_streams"] {
		t.Error("no alert tells of parked reactions")
	}
}
