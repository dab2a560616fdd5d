package node

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	"github.com/atelier-run/atelier/tests/race"
)

// TestSuspensionStopsSessions suspends a workspace in the middle of a turn.
func TestSuspensionStopsSessions(t *testing.T) {
	s := newAgentSite(t)
	long := s.duration()
	id := s.startSession("say Before.\n$ exec sleep "+long+"\nsay Never.", nil)
	line := s.follow(id)
	pids := s.awaitProcess(long)
	if delivery := s.send(id, "messages", fields{"text": "say Later.", "behavior": "follow_up"}); delivery != "queued" {
		t.Errorf("the delivery of the follow-up is %s", delivery)
	}
	asking := s.startSession("ask Go on?", nil)
	s.follow(asking).awaitTerminal()

	s.must(http.StatusOK, s.request("PUT", "/admin/suspension", fields{"suspended": true}), nil)
	if end := line.awaitTerminal(); end.String() != "terminal interrupted workspace_suspended" {
		t.Errorf("the turn has ended with %s", end)
	}
	s.awaitEnd(pids)

	if d := s.describe(id); len(d.PendingInputs) > 1 {
		t.Errorf("the session is %+v", d)
	}
	s.must(http.StatusOK, s.request("GET", sessionsPath, nil), nil)
	s.must(http.StatusOK, s.request("GET", sessionPath(id)+"/history?order=asc", nil), nil)
	for _, refused := range []response{
		s.request("POST", sessionsPath, fields{"prompt": "say no"}),
		s.request("POST", sessionPath(id)+"/messages", fields{"text": "say no"}),
		s.request("POST", sessionPath(id)+"/notes", fields{"text": "no"}),
		s.request("POST", sessionPath(asking)+"/answer", fields{"text": "no"}),
		s.request("POST", sessionPath(id)+"/interrupt", nil),
		s.request("PATCH", sessionPath(id), fields{"title": "no"}),
		s.request("POST", sessionPath(id)+"/cwd", fields{"cwd": ""}),
		s.request("PUT", sessionPath(id)+"/archive", fields{"scope": "global", "archived": true}),
		s.request("DELETE", sessionPath(id), nil),
	} {
		s.refuse(http.StatusForbidden, "workspace_suspended", refused)
	}
	s.must(http.StatusOK, s.request("PUT", "/admin/suspension", fields{"suspended": false}), nil)
	line.awaitTerminal()
	line.expect("text terminal", "text Before.", "terminal interrupted workspace_suspended", "text Later.", "terminal complete")
	again := s.follow(asking)
	s.send(asking, "answer", fields{"text": "yes"})
	again.awaitLine("input user yes")
	again.awaitTerminal()
}

// TestComputerIsLostInATurn kills the computer in the middle of a turn. The session goes on when the computer is back, and does
// not repeat the lines that were carried out, nor the one that was running.
func TestComputerIsLostInATurn(t *testing.T) { testComputerIsLostInATurn(t) }

func testComputerIsLostInATurn(t *testing.T, changes ...func(*Options)) {
	s := newAgentSite(t, changes...)
	long := s.duration()
	id := s.startSession("$ echo one >> log\n$ echo two >> log; exec sleep "+long+"\n$ echo three >> log; cat log\nsay After.", nil)
	line := s.follow(id)
	s.awaitProcess(long)
	s.loseComputer()
	if end := line.awaitTerminal(); end.String() != "terminal interrupted computer_lost" {
		t.Fatalf("the turn has ended with %s", end)
	}
	if input := line.await(func(r row) bool { return r.Kind == "input" }); input.Sender.Kind != "system" {
		t.Errorf("the session goes on with %s", input)
	}
	if end := line.awaitTerminal(); end.String() != "terminal complete" {
		t.Errorf("the second turn has ended with %s; the timeline: %s", end, strings.Join(line.order, "\n"))
	}
	texts := line.of("text")
	if len(texts) != 2 || !strings.Contains(texts[0], "was interrupted") || texts[1] != "text After." {
		t.Errorf("the texts are %q", texts)
	}
	if log := s.read("log"); log != "one\ntwo\nthree\n" {
		t.Errorf("the log is %q", log)
	}

	// A session that asks when the computer is lost is not disturbed.
	id = s.startSession("$ echo four >> log\nask Go on?\n$ echo {{answer}} >> log", nil)
	line = s.follow(id)
	line.awaitTerminal()
	s.loseComputer()
	s.until(func() bool { return len(s.running()) == 0 }) // the runner may know it later
	s.send(id, "answer", fields{"text": "five"})
	line.awaitLine("terminal complete")
	if log := s.read("log"); log != "one\ntwo\nthree\nfour\nfive\n" {
		t.Errorf("the log is %q", log)
	}
}

// TestReprovisionWaitsForSessions replaces a computer only when no session runs or asks.
func TestReprovisionWaitsForSessions(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	testReprovisionWaitsForSessions(t)
}

func testReprovisionWaitsForSessions(t *testing.T, changes ...func(*Options)) {
	s := newAgentSite(t, changes...)
	type answer struct {
		Status, Reason                       string
		ActiveAgentSessions, ActiveTrainJobs int
	}
	reprovision := func() (a answer) {
		t.Helper()
		s.must(http.StatusOK, s.request("POST", "/reprovision", nil), &a)
		return a
	}
	running := s.startSession("$ while ! [ -e go ]; do sleep 0.05; done\nsay Done.", nil)
	asking := s.startSession("ask Go on?", nil)
	job := s.startSession("step 1/2 half\nask And the job?\nstep 2/2 all", nil)
	sleeping := s.startSession("sleep 1h", nil)
	var lines []*timeline
	for _, id := range []string{asking, job, sleeping} {
		line := s.follow(id)
		line.awaitTerminal()
		lines = append(lines, line)
	}
	end := s.follow(running)
	end.awaitLine("tool")
	if got, want := reprovision(), (answer{"deferred", "active_workspace_work", 2, 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	d, release, err := s.Drives.Open(t.Context(), s.workspaceID)
	s.check(err)
	s.check(d.MakeFolder(t.Context(), "go", change))
	release()
	end.awaitTerminal()
	if got, want := reprovision(), (answer{"deferred", "active_workspace_work", 1, 1}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i, id := range []string{asking, job} {
		s.send(id, "answer", fields{"text": "yes"})
		lines[i].awaitTerminal()
	}
	if got := reprovision(); !slices.Contains([]string{"backup_pending", "provisioning"}, got.Status) {
		t.Errorf("got %+v", got)
	}
	s.until(func() bool {
		reply, err := s.Router.Ask(t.Context(), entity.Command{
			Kind: entity.KindComputer, Identity: s.workspaceID, Principal: entity.Platform(), Message: &computerv1.DescribeComputer{},
		})
		s.check(err)
		return reply.(*computerv1.Computer).GetTask() == nil
	})
	s.send(running, "messages", fields{"text": "$ echo back"})
	end.awaitTerminal()
	end.expect("terminal", "terminal complete", "terminal complete")
}
