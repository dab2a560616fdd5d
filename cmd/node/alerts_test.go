package node_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/tests/nodetest"
)

// metricNames returns the names of the metrics in a node's registry, also of metrics that have no value yet.
func metricNames(t *testing.T) map[string]bool {
	t.Helper()
	registry := prometheus.NewRegistry()
	nodetest.Start(t, node.Start, node.Options{Dir: t.TempDir(), Registry: registry, Computers: node.ComputerOptions{Driver: node.LocalDriver}})
	descriptions := make(chan *prometheus.Desc)
	go func() { registry.Describe(descriptions); close(descriptions) }()
	names := map[string]bool{}
	name := regexp.MustCompile(`fqName: "([^"]+)"`)
	for d := range descriptions {
		names[name.FindStringSubmatch(d.String())[1]] = true
	}
	return names
}

var metric = regexp.MustCompile(`\batelier_[a-z0-9_]*[a-z0-9]`)

// has reports whether a node has a metric, or the histogram that a series belongs to.
func has(names map[string]bool, name string) bool {
	for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
		if histogram, found := strings.CutSuffix(name, suffix); found && names[histogram] {
			return true
		}
	}
	return false
}

// TestDashboardsAreOfMetrics compares the queries of the dashboards with the metrics that a node has, both ways: a metric that no
// panel shows is forgotten. TestDashboards of tests/process runs the queries.
func TestDashboardsAreOfMetrics(t *testing.T) {
	boards, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatal("there are no dashboards: ", err)
	}
	names, shown := metricNames(t), ""
	for _, board := range boards {
		text, err := os.ReadFile(board)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metric.FindAllString(string(text), -1) {
			if !has(names, name) {
				t.Errorf("%s is about %s, which a node does not have", board, name)
			}
		}
		shown += string(text)
	}
	for name := range names {
		if strings.HasPrefix(name, "atelier_") && !strings.Contains(shown, name) {
			t.Errorf("no dashboard shows %s", name)
		}
	}
}

// TestAlerts compares the alert rules with the metrics that a node has, and with the sections of docs/operations.md that say what
// to do.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yml")
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
	runbooks, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names, used := metricNames(t), map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
				t.Errorf("the alert %+v is incomplete", r)
			}
			if r.Annotations["runbook"] != "docs/operations.md#"+strings.ToLower(r.Alert) || !strings.Contains(string(runbooks), "\n#### "+r.Alert+"\n") {
				t.Errorf("%s has no section in docs/operations.md, or does not name it", r.Alert)
			}
			found := metric.FindAllString(r.Expr, -1)
			if len(found) == 0 && r.Alert != "AtelierDown" {
				t.Errorf("%s is about no metric", r.Alert)
			}
			for _, name := range found {
				used[name] = true
				if !has(names, name) {
					t.Errorf("%s is about %s, which a node does not have", r.Alert, name)
				}
			}
		}
	}
	if !used["atelier_reactor_parked_streams"] {
		t.Error("no alert tells of parked reactions")
	}
}
