package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/testmachine"
)

const deployed = "../../deploy"

// program finds a program; where it is missing the test is left out, but in continuous integration it fails.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	testmachine.Lacks(t, name+" is not installed")
	return ""
}

// TestPrometheusRules checks the alert rules and the configuration, and runs the rules' own tests.
func TestPrometheusRules(t *testing.T) {
	promtool := program(t, "promtool")
	for _, arguments := range [][]string{
		{"check", "config", "prometheus.yml"}, {"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"},
	} {
		command := exec.Command(promtool, arguments...)
		command.Dir = filepath.Join(deployed, "prometheus")
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
}

// TestDashboards has a Prometheus scrape a node under some traffic, with the configuration of deploy/prometheus, until each query
// of each panel of the dashboards finds a number, and each alert rule has been evaluated.
func TestDashboards(t *testing.T) {
	prometheus := program(t, "prometheus")
	queries := panelQueries(t)
	n := start(t, filepath.Join(t.TempDir(), "data"), "--stream-segment=1s", "--rate=0", "--address-rate=0")
	_, key := newPerson(t, n, "ada@example.org")
	c := newClient(n.address, key)
	newWorkspace(t, c)
	keepBusy(t, n, c)
	p := startPrometheus(t, prometheus, n.address)

	for _, q := range queries {
		eventually(t, q.panel+" has data for "+q.expression, func() bool {
			var found struct {
				Result []struct{ Value [2]any }
			}
			p.ask(t, "query?query="+url.QueryEscape(q.expression), &found)
			for _, series := range found.Result {
				if series.Value[1] != "NaN" {
					return true
				}
			}
			return false
		})
	}
	eventually(t, "each alert rule is evaluated", func() bool {
		var rules struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
		p.ask(t, "rules", &rules)
		evaluated := 0
		for _, group := range rules.Groups {
			for _, rule := range group.Rules {
				if rule.Health == "err" {
					t.Fatalf("%s: %s", rule.Name, rule.LastError)
				}
				if rule.Health == "ok" {
					evaluated++
				}
			}
		}
		return len(rules.Groups) > 0 && evaluated == len(rules.Groups[0].Rules)
	})
}

// panelQuery is one query of a dashboard, as Grafana sends it to Prometheus.
type panelQuery struct{ panel, expression string }

func panelQueries(t *testing.T) (queries []panelQuery) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(deployed, "grafana", "*.json"))
	if err != nil || len(names) == 0 {
		t.Fatal("there are no dashboards: ", err)
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".+", "$kind", ".+")
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title  string
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, panel := range board.Panels {
			if len(panel.Targets) == 0 {
				t.Errorf("%s: the panel %s has no query", board.Title, panel.Title)
			}
			for _, target := range panel.Targets {
				queries = append(queries, panelQuery{board.Title + ", " + panel.Title, variables.Replace(target.Expr)})
			}
		}
	}
	return queries
}

// keepBusy has a person write, read, open an app, follow a stream, start sessions and back up until the test ends, so that each kind of
// work is measured.
func keepBusy(t *testing.T, n *node, c *client) {
	t.Helper()
	host := publishApp(t, c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { cancel(); <-ended; c.close() })
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			_, _, _ = c.do(ctx, http.MethodPut, drivePath(fmt.Sprintf("file-%d", i%50)), bytes.Repeat([]byte("x"), 4096))
			_, _, _ = c.do(ctx, http.MethodGet, drivePath(fmt.Sprintf("file-%d", i%50)), nil)
			_, _, _ = c.do(ctx, http.MethodGet, "/v1/whoami", nil)
			visit(ctx, c, host)
			if i%10 == 0 {
				_ = c.follow(ctx, "", func() {}, func(string, []byte) {}) // for the second that a segment lasts
				_, _, _ = c.do(ctx, http.MethodPost, sessionsPath, []byte(`{"prompt":"say hello"}`), "Content-Type", "application/json")
				_ = exec.CommandContext(ctx, binary, "admin", "backup", "create", "--data="+n.dir, "--slug=factory").Run()
			}
		}
	}()
}

// publishApp registers an app that everybody may open, and returns its host.
func publishApp(t *testing.T, c *client) string {
	t.Helper()
	c.expect(t, http.StatusCreated, "MKCOL", drivePath("shop"), "")
	var registered struct {
		App struct{ CanonicalURL string }
	}
	status, err := c.postJSON(t.Context(), spacePath("factory", "/apps"), map[string]any{
		"path": "shop", "slug": "shop", "command": "exec /.atelier/atelier site", "apiScopes": []string{},
	}, &registered)
	if err != nil || status != http.StatusCreated {
		t.Fatal("registering an app: ", status, err)
	}
	status, body, err := c.do(t.Context(), http.MethodPut, spacePath("factory", "/apps/shop/visibility"), []byte(`{"visibility":"public"}`), "Content-Type", "application/json")
	if err != nil || status != http.StatusOK {
		t.Fatalf("publishing an app: %d %s %v", status, body, err)
	}
	address, err := url.Parse(registered.App.CanonicalURL)
	if err != nil || address.Host == "" {
		t.Fatalf("the address of the app is %q: %v", registered.App.CanonicalURL, err)
	}
	return address.Host
}

// visit requests the first page of an app. Each answer is measured.
func visit(ctx context.Context, c *client, host string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+"/", http.NoBody)
	if err != nil {
		return
	}
	request.Host = host
	if response, err := c.http.Do(request); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}

// monitor is a running Prometheus.
type monitor struct{ address string }

// startPrometheus runs Prometheus with the configuration of deploy/prometheus, at a port that it chooses, and scrapes each second.
func startPrometheus(t *testing.T, prometheus, node string) *monitor {
	t.Helper()
	dir := t.TempDir()
	faster := strings.NewReplacer("127.0.0.1:8080", strings.TrimPrefix(node, "http://"), "_interval: 15s", "_interval: 1s")
	for _, name := range []string{"prometheus.yml", "alerts.yml"} {
		text, err := os.ReadFile(filepath.Join(deployed, "prometheus", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(faster.Replace(string(text))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(prometheus, "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	logs, err := command.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		listening := regexp.MustCompile(`msg="Listening on" address=(\S+)`)
		for lines := bufio.NewScanner(logs); lines.Scan(); {
			if found := listening.FindStringSubmatch(lines.Text()); found != nil {
				address <- found[1]
			}
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
		_ = command.Wait() // it was killed
	})
	select {
	case at := <-address:
		return &monitor{"http://" + at}
	case <-ended:
	case <-time.After(patience):
	}
	t.Fatal("Prometheus does not start")
	return nil
}

// ask decodes the data of an answer of Prometheus' API. Data that is not there yet leaves out as it is.
func (m *monitor) ask(t *testing.T, path string, out any) {
	t.Helper()
	response, err := http.Get(m.address + "/api/v1/" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: out}
	if response.StatusCode == http.StatusServiceUnavailable {
		return // it is starting
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %s %s %v", path, response.Status, answer.Error, err)
	}
}
