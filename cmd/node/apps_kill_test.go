package node

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	"github.com/atelier-run/atelier/tests/race"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// killDir is the environment variable with the directory of the node that TestKillAppChild runs.
const killDir = "ATELIER_TEST_KILL_DIR"

// bystander is a process that the app of the child starts beside its server.
const bystander = "sleep 7051"

// TestAppAfterAKill ends a node with SIGKILL while an app runs. The next node has one process of each kind: none is left of the first.
func TestAppAfterAKill(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKillAppChild$", "-test.v", "-test.timeout=120s")
	child.Env = append(os.Environ(), killDir+"="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	workspaceID, log := "", ""
	for lines := bufio.NewScanner(out); workspaceID == "" && lines.Scan(); {
		log += lines.Text() + "\n"
		_, workspaceID, _ = strings.Cut(lines.Text(), "serving ")
	}
	if workspaceID == "" {
		_ = child.Wait()
		if strings.Contains(log, "SKIP") {
			testmachine.Lacks(t, log)
		}
		t.Fatalf("the child ended by itself: %s", log)
	}
	if n := running(t, bystander); n != 1 {
		t.Errorf("%d processes run beside the server of the app", n)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()

	a := &anApp{agentSite: openAgentSite(t, dir)}
	t.Cleanup(a.stop)
	a.workspaceID, a.client = workspaceID, a.newClient()
	a.until(func() bool {
		response, err := a.client.Get("http://app/")
		if err != nil {
			return false
		}
		response.Body.Close()
		return true
	})
	if n := running(t, bystander); n != 1 {
		t.Errorf("after the kill, %d processes run beside the server of the app", n)
	}
	if described := a.tell(&appv1.DescribeApp{}); described.GetRuntimeStatus() != appReconciled {
		t.Errorf("after the kill, the app is %v", described.GetRuntimeStatus())
	}
	read, release, err := a.serving.Load().apps.Logs(workspaceID, testAppID)
	a.check(err)
	defer release()
	starts := 0
	for _, line := range read(0, 1000).Lines {
		if strings.HasPrefix(line.Text, "starting: ") {
			starts++
		}
	}
	if starts != 2 {
		t.Errorf("the log has %d starts, want one of each node", starts)
	}
	content, err := os.ReadFile(filepath.Join(dir, "apps", testAppID, "log"))
	if err != nil || strings.Contains(string(content), "atlapp_") {
		t.Errorf("the file of the log has a key, or %v", err)
	}
}

// running returns the number of processes of the machine with a command line.
func running(t *testing.T, command string) int {
	t.Helper()
	found, err := exec.Command("pgrep", "-fx", command).Output()
	if err != nil && len(found) > 0 {
		t.Fatal(err)
	}
	return len(strings.Fields(string(found)))
}

// TestKillAppChild is the main function of the child of TestAppAfterAKill.
func TestKillAppChild(t *testing.T) {
	dir := os.Getenv(killDir)
	if dir == "" {
		return // it runs as a child of TestAppAfterAKill
	}
	a, made := newApp(t, &appv1.Runtime{
		Command: "(setsid " + bystander + " &) ; exec " + command("one"), Port: 20000, ApiScopes: []string{entity.FilesRead},
	}, func(o *Options) { o.Dir = dir })
	if made.GetRuntimeStatus() != appReconciled {
		t.Fatal(made.GetReconciliationError())
	}
	fmt.Println("serving " + a.workspaceID)
	<-t.Context().Done()
}
