package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/drive/observe"
	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// newComputerHome returns a home with computers that run processes, with the local driver unless the changes select another driver. It
// skips the test on a machine that cannot isolate them.
func newComputerHome(t *testing.T, changes ...func(*Options)) *home {
	h := &home{T: t, dir: t.TempDir()}
	h.options = Options{
		Dir: h.dir, Wire: true, PendingLimit: testTimeout, Clock: h.clock, Computers: ComputerOptions{Driver: LocalDriver},
		Journal: persistence.Options{CacheBytes: 4 << 20, Partitions: 2},
	}
	for _, change := range changes {
		change(&h.options)
	}
	var err error
	if h.Node, err = Start(t.Context(), h.options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.stop)
	_, err = h.Router.Ask(t.Context(), entity.Command{
		Kind: entity.KindUser, Identity: "usr_1", Principal: entity.Platform(), Message: &userv1.CreateUser{Email: "alice@example.org", Name: "Alice"},
	})
	h.check(err)
	h.ask(entity.KindWorkspace, &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "usr_1"})
	h.settle()
	h.done()
	return h
}

// agentOf is the launch of a shell as the agent of a session.
func agentOf(session, user, script string) computer.Launch {
	return computer.Launch{
		WorkspaceID: ws, Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_SESSION,
		SessionID: session, UserID: user, Argv: []string{"sh", "-c", script},
	}
}

// launch starts a process. It skips the test if the machine cannot isolate processes.
func (h *home) launch(l computer.Launch) *computer.Running {
	h.Helper()
	r, err := h.Computers.Launch(context.Background(), l)
	if refused, is := errors.AsType[*entity.Error](err); is && refused.Code == entity.Forbidden {
		testmachine.Lacks(h, fmt.Sprintf("this machine cannot isolate processes: %v", err))
	}
	h.check(err)
	if stderr := r.Streams().Stderr; stderr != nil {
		go func() { _, _ = io.Copy(io.Discard, stderr) }()
	}
	return r
}

// TestProcessesOfSessions runs processes of two sessions at the same time. What they and their descendants change is the work of
// their sessions.
func TestProcessesOfSessions(t *testing.T) { testProcessesOfSessions(t) }

func testProcessesOfSessions(t *testing.T, changes ...func(*Options)) {
	h := newComputerHome(t, changes...)
	const script = `mkdir $0.d; (setsid sh -c "echo x > $0.d/descendant" &) ; while ! [ -s $0.d/descendant ]; do :; done; echo ready; read x`
	var all []*computer.Running
	for _, one := range [][2]string{{"ses_1", "usr_7"}, {"ses_2", ""}} {
		l := agentOf(one[0], one[1], script)
		l.Argv = append(l.Argv, one[0])
		r := h.launch(l)
		if _, err := io.ReadFull(r.Streams().Stdout, make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	listed := rows(h, entity.KindComputer, "computer.process", func() *computerv1.Process { return new(computerv1.Process) })
	sessions := map[string]string{}
	for _, p := range listed {
		sessions[p.GetSessionId()] = p.GetActor() + " " + p.GetUserId()
	}
	if len(listed) != 2 || sessions["ses_1"] != "session:ses_1 usr_7" || sessions["ses_2"] != "session:ses_2 " {
		t.Errorf("the list has %v", listed)
	}
	usage, err := h.driver.Usage(t.Context(), ws)
	h.check(err)
	groups := make([]string, 0, len(usage))
	for _, u := range usage {
		groups = append(groups, u.Group)
	}
	if !slices.Equal(groups, []string{"session:ses_1", "session:ses_2"}) {
		t.Errorf("the groups are %q", groups)
	}
	for _, r := range all {
		h.check(r.Streams().Stdin.Close())
		if exit, err := r.Wait(t.Context()); err != nil || exit.Reason != "" {
			t.Errorf("ended %+v, %v", exit, err)
		}
	}
	if mode, reason := h.observer.Mode(); mode != observe.Events {
		testmachine.Lacks(t, fmt.Sprintf("changes of two authors at the same time are attributed with events only: %v", reason))
	}
	page := h.as(owner, entity.KindActivity, &activityv1.ReadFeed{Limit: 100}).(*activityv1.Page)
	var feed []struct {
		Event struct{ Path, Actor, UserID string }
	}
	h.check(json.Unmarshal([]byte("["+string(page.GetItems())+"]"), &feed))
	authors := map[string]string{}
	for _, row := range feed {
		authors[row.Event.Path] = row.Event.Actor + " " + row.Event.UserID
	}
	for path, want := range map[string]string{
		"ses_1.d": "session:ses_1 usr_7", "ses_1.d/descendant": "session:ses_1 usr_7",
		"ses_2.d": "session:ses_2 ", "ses_2.d/descendant": "session:ses_2 ",
	} {
		if authors[path] != want {
			t.Errorf("%s is the work of %q, want %q; the activity: %s", path, authors[path], want, page.GetItems())
		}
	}
	for _, e := range rows(h, entity.KindWorkspace, "audit", func() *auditv1.Event { return new(auditv1.Event) }) {
		if strings.HasPrefix(e.GetEvent(), "exec") || strings.HasPrefix(e.GetEvent(), "terminal") {
			t.Errorf("the audit log has %v", e)
		}
	}
}

// TestMembersStartNoProcessesOfSessions lets the owner of a workspace pretend to be the platform.
func TestMembersStartNoProcessesOfSessions(t *testing.T) {
	h := newComputerHome(t)
	l := agentOf("ses_1", "usr_7", "true")
	l.Principal = owner
	_, err := h.Computers.Launch(t.Context(), l)
	if refused, is := errors.AsType[*entity.Error](err); !is || refused.Code != entity.Forbidden {
		t.Errorf("Launch returned %v", err)
	}
}

// TestSessionReachesListener has a process reach the server although its computer has no network, until the computer is replaced.
func TestSessionReachesListener(t *testing.T) {
	h := newComputerHome(t)
	r := h.launch(agentOf("ses_1", "usr_7", "echo ready; read x"))
	l, err := h.Computers.Listen(t.Context(), ws, 0)
	h.check(err)
	host, port, _ := strings.Cut(l.Addr().String(), ":")
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.WriteString(c, "answer\n")
			_ = c.Close()
		}
	}()
	client := agentOf("ses_1", "usr_7", "")
	client.Argv = []string{"perl", "-MIO::Socket::INET", "-e",
		`my $s = IO::Socket::INET->new(PeerAddr => $ARGV[0], PeerPort => $ARGV[1]) or die $!; print <$s>`, host, port}
	p := h.launch(client)
	if got, err := io.ReadAll(p.Streams().Stdout); string(got) != "answer\n" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	_, err = p.Wait(t.Context())
	h.check(err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for err == nil {
			_, err = l.Accept()
		}
	}()
	h.as(owner, entity.KindComputer, &computerv1.Reprovision{TaskId: "tsk_new", BackupId: "bkp_new"})
	if exit, err := r.Wait(t.Context()); err != nil || exit.Reason != computer.EndedStopped {
		t.Errorf("ended %+v, %v", exit, err)
	}
	<-ended
	h.done()
}
