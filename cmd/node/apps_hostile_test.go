package node

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	"github.com/atelier-run/atelier/tests/race"
	"github.com/atelier-run/atelier/tests/testmachine"
)

const (
	appReconciled = appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED
	appFailed     = appv1.RuntimeStatus_RUNTIME_STATUS_FAILED
)

// TestHostileApps edits an app so that it has commands with all sorts of bad behavior, one after the other. What a command has started
// ends with it.
func TestHostileApps(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	a, _ := newApp(t, &appv1.Runtime{Command: command("one"), Port: 20000, ApiScopes: []string{entity.FilesRead}},
		func(o *Options) { o.Apps.Ready = 8 * time.Second })
	const daemons = "(setsid sleep 7001 &) ; (trap '' TERM HUP; setsid sh -c \"trap '' TERM; sleep 7002; sleep 7002\" &) ; "
	for name, of := range map[string]struct {
		command string
		failure []string // empty: it works
	}{
		"leaves daemons":      {command: daemons + "exec " + command("daemons")},
		"ignores SIGTERM":     {command: "trap '' TERM; " + command("stubborn") + "; sleep 7003"},
		"listens late":        {command: "sleep 1; exec " + command("late")},
		"floods its output":   {command: "(while :; do cat /dev/zero | tr '\\0' y | head -c 100000000; done &) ; exec " + command("flood")},
		"never listens":       {command: "echo hello; exec sleep 7004", failure: []string{"20000", "hello"}},
		"listens elsewhere":   {command: "PORT=20001 exec " + command("elsewhere"), failure: []string{"20000", "the key is [key]"}},
		"exits at once":       {command: daemons + "echo $SERVICE_APP_API_KEY; exit 7", failure: []string{"exit status 7", "[key]"}},
		"does not exist":      {command: "./no-such-program", failure: []string{"exit status 127", "no-such-program"}},
		"prints invalid text": {command: `printf 'a\377\000b'; exit 1`, failure: []string{"exit status 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			edited := a.await(a.tell(&appv1.UpdateApp{Command: proto.String(of.command)}).GetGeneration())
			want := appReconciled
			if len(of.failure) > 0 {
				want = appFailed
			}
			if edited.GetRuntimeStatus() != want {
				t.Fatalf("the app is %v: %q", edited.GetRuntimeStatus(), edited.GetReconciliationError())
			}
			for _, part := range of.failure {
				if !strings.Contains(edited.GetReconciliationError(), part) {
					t.Errorf("the error %q does not have %q", edited.GetReconciliationError(), part)
				}
			}
			if _, body := a.get("/"); body == "" {
				t.Error("the app answers nothing")
			}
		})
	}
	a.tell(&appv1.SetDisabled{Disabled: true})
	a.until(func() bool { return len(a.running()) == 0 })
	for _, sleeper := range []string{"7001", "7002", "7003", "7004"} {
		if found, err := exec.Command("pgrep", "-fx", "sleep "+sleeper).Output(); err == nil {
			t.Errorf("a process is left: sleep %s, pid %s", sleeper, found)
		}
	}
}

// TestAppIsReplacedWithoutAGap replaces the process of an app at the same port. Every request is answered, by the old process or the new
// one, and processes of the computer reach it at the port.
func TestAppIsReplacedWithoutAGap(t *testing.T) {
	a, _ := newApp(t, &appv1.Runtime{Command: command("one"), Port: 20000})
	if !a.Computers.OwnNetworks() {
		testmachine.Lacks(t, "the processes of a computer have no networks of their own")
	}
	edited := make(chan *appv1.App)
	go func() {
		generation := a.tell(&appv1.UpdateApp{Command: proto.String("sleep 1; exec " + command("two"))}).GetGeneration()
		edited <- a.await(generation)
	}()
	answers := map[string]int{}
	for isEdited := false; !isEdited; {
		status, body := a.get("/")
		answers[fmt.Sprint(status, " ", body)]++
		select {
		case is := <-edited:
			isEdited = true
			if is.GetRuntimeStatus() != appReconciled {
				t.Errorf("the app is %v: %q", is.GetRuntimeStatus(), is.GetReconciliationError())
			}
		default:
		}
	}
	if len(answers) > 2 || answers["200 one"] == 0 {
		t.Errorf("the answers are %v", answers)
	}
	if _, body := a.get("/"); body != "two" {
		t.Errorf("after the edit the app answers %q", body)
	}
	c, err := a.Computers.Dial(t.Context(), a.workspaceID, 20000)
	a.check(err)
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	buffer := make([]byte, 1000)
	n, err := c.Read(buffer)
	if err != nil || !strings.Contains(string(buffer[:n]), "200 OK") {
		t.Errorf("at the port in the computer: %q, %v", buffer[:n], err)
	}
}
