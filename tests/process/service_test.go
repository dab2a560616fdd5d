package process

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
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
	data := filepath.Join(dir, "atelier") // the folder that the unit's ATELIER_DATA names
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

// TestServiceRestarts/settings expects that a node with wrong settings ends with the one code that keeps the unit's systemd from starting
// it again, and TestServiceRestarts/runtime that the Go runtime never ends a node with this code.
func TestServiceRestarts(t *testing.T) {
	unit := readUnit(t)
	if !strings.Contains(unit, "\nRestart=always\n") {
		t.Error("systemd does not start the node again")
	}
	found := regexp.MustCompile(`(?m)^RestartPreventExitStatus=(.*)$`).FindAllStringSubmatch(unit, -1)
	if len(found) != 1 {
		t.Fatalf("the unit has %q", found)
	}
	final, err := strconv.Atoi(found[0][1])
	if err != nil {
		t.Fatal(err)
	}
	t.Run("settings", func(t *testing.T) {
		dir := t.TempDir()
		write := func(name, text string) string {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		data := "--data=" + filepath.Join(dir, "data")
		for name, arguments := range map[string][]string{
			"no command":         {},
			"an unknown command": {"serv"},
			"an unknown flag":    {"serve", data, "--rat=1"},
			"a wrong flag":       {"serve", data, "--rate=many"},
			"an argument":        {"serve", data, "now"},
			"a bound":            {"serve", data, "--rate=-1"},
			"an address":         {"serve", data, "--listen=nowhere"},
			"a missing file":     {"serve", data, "--config=" + filepath.Join(dir, "none.yaml")},
			"a file":             {"serve", data, "--config=" + write("unclear.yaml", "rate: [")},
			"a key of the file":  {"serve", data, "--config=" + write("typo.yaml", "rat: 1\n")},
			"agents":             {"serve", data, "--agents=" + write("agents.yaml", "tiers: {cheap: {agent: builtin}}\n")},
			"no secret":          {"serve", data, "--oidc-issuer=https://id.example.org", "--oidc-client-id=a", "--oidc-client-secret-file=" + filepath.Join(dir, "none")},
			"no root":            {"serve", data, "--acme-root=" + write("root.pem", "none"), "--https-listen=127.0.0.1:0", "--public-url=https://a.example.com", "--acme-email=a@example.com"},
			"other files":        {"serve", "--data=" + filepath.Dir(write("other/picture.png", "x"))},
			"no port of a site":  {"site", "--port="},
			"no consent":         {"accept", data},
			"an agent":           {"agent", "help"},
		} {
			if _, errs, code := atelier(arguments...); code != final || errs == "" {
				t.Errorf("%s: exit %d, want %d: %s", name, code, final, errs)
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "data", "journal")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("wrong settings have made a node: %v", err)
		}
	})
	t.Run("runtime", func(t *testing.T) {
		// The runtime reserves more addresses than this limit when it starts, and ends with a fatal error.
		fatal := exec.Command("sh", "-c", `ulimit -v 400000 && exec "$0" version`, binary)
		out, err := fatal.CombinedOutput()
		if code := fatal.ProcessState.ExitCode(); err == nil || !strings.Contains(string(out), "fatal error: ") || code <= 0 || code == final {
			t.Errorf("a fatal error: exit %d, %v\n%.400s", code, err, out)
		}
		// After SIGQUIT, the runtime ends as after a panic that nothing recovers.
		n := start(t, t.TempDir())
		if err := n.command.Process.Signal(syscall.SIGQUIT); err != nil {
			t.Fatal(err)
		}
		if code := n.end(t); code <= 0 || code == final {
			t.Errorf("a panic: exit %d", code)
		}
	})
}

func readUnit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deployed, "atelier.service"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
