package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestServiceIsConfined checks the unit of deploy/atelier.service: systemd understands each line, and rates its exposure below 3
// of 10.
func TestServiceIsConfined(t *testing.T) {
	analyze := program(t, "systemd-analyze")
	unit := filepath.Join(t.TempDir(), "atelier.service")
	text := strings.Replace(readUnit(t), "ExecStart=/usr/local/bin/atelier", "ExecStart="+binary, 1)
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput(); err != nil || strings.Contains(string(out), unit+":") {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", unit).CombinedOutput()
	exposure := regexp.MustCompile(`Overall exposure level for atelier\.service: (\d+\.\d+)`).FindSubmatch(out)
	if err != nil || exposure == nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	if level, err := strconv.ParseFloat(string(exposure[1]), 64); err != nil || level >= 3 {
		t.Errorf("the exposure is %s, which is not below 3:\n%s", exposure[1], out)
	}
}

// TestServiceStarts runs the node with the settings of the unit: its environment and a file of settings.
func TestServiceStarts(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "atelier.yaml")
	if err := os.WriteFile(config, []byte("min-free-space: 1MiB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	through := []string{"env"}
	for _, found := range regexp.MustCompile(`(?m)^Environment=(.*)$`).FindAllStringSubmatch(readUnit(t), -1) {
		through = append(through, strings.ReplaceAll(found[1], "%S", dir))
	}
	data := filepath.Join(dir, "atelier") // what the unit's ATELIER_DATA names
	n, err := launchBy(through, data, "--config="+config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.kill)
	if !n.ready() {
		t.Fatalf("the node did not start:\n%s", n.logs)
	}
	newPerson(t, n, "ada@example.org")
	if len(through) != 3 || through[1] != "ATELIER_DATA="+data {
		t.Errorf("the unit's environment is %v", through[1:])
	}
	if code := n.terminate(t); code != 0 {
		t.Errorf("exit %d:\n%s", code, n.logs)
	}
}

func readUnit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployed, "atelier.service"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
