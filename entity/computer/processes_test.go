package computer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/entity/entitytest"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

func start(id string) *computerv1.StartProcess {
	return &computerv1.StartProcess{ProcessId: id, Kind: computerv1.ProcessKind_PROCESS_KIND_TERMINAL, Program: "bash"}
}

func startOf(k computerv1.ProcessKind, id string) *computerv1.StartProcess {
	return &computerv1.StartProcess{ProcessId: id, Kind: k, Program: "sh"}
}

func startSession(id, session string) *computerv1.StartProcess {
	return &computerv1.StartProcess{
		ProcessId: id, Kind: computerv1.ProcessKind_PROCESS_KIND_SESSION, Program: "agent", SessionId: session, UserId: "usr_2",
	}
}

func startApp(id, app string) *computerv1.StartProcess {
	return &computerv1.StartProcess{
		ProcessId: id, Kind: computerv1.ProcessKind_PROCESS_KIND_APP, Program: "serve", AppId: app, UserId: "usr_2",
	}
}

func TestStartProcess(t *testing.T) {
	l := newActive(t)
	reply, err := l.as(owner, start("prc_1"))
	if err != nil {
		t.Fatal(err)
	}
	p := reply.(*computerv1.Process)
	if p.GetActor() != "terminal" || p.GetUserId() != "usr_1" || p.GetProgram() != "bash" || p.GetStartedAt() == 0 {
		t.Errorf("admitted %v", p)
	}
	last := l.audit[len(l.audit)-1]
	if last.GetEvent() != "terminal.opened" || last.GetActorId() != "usr_1" || last.GetProvenance().GetName() != "bash" {
		t.Errorf("the audit log has %v", last)
	}
	events := len(l.events)
	if _, err := l.as(owner, start("prc_1")); err != nil || len(l.events) != events {
		t.Errorf("starting the same process again: %v, %d events more", err, len(l.events)-events)
	}
	l.must(&computerv1.ReportProcessEnded{ProcessId: "prc_1", Status: 3, Reason: "stopped"})
	if ended := l.events[len(l.events)-1].(*computerv1.ProcessEnded); ended.GetStatus() != 3 || ended.GetReason() != "stopped" {
		t.Errorf("recorded %v", ended)
	}
	events = len(l.events)
	l.must(&computerv1.ReportProcessEnded{ProcessId: "prc_1"})
	if len(l.state.GetProcesses()) != 0 || len(l.events) != events {
		t.Errorf("after a repeated report: %v", l.state.GetProcesses())
	}
}

// TestStartProcessOfSession checks that the process has the session as its actor, and is not in the audit log.
func TestStartProcessOfSession(t *testing.T) {
	l := newActive(t)
	p := l.must(startSession("prc_1", "ses_1-a")).(*computerv1.Process)
	if p.GetActor() != "session:ses_1-a" || p.GetSessionId() != "ses_1-a" || p.GetUserId() != "usr_2" || p.GetImpersonatorId() != "" {
		t.Errorf("admitted %v", p)
	}
	if row := l.rows[computer.ProcessList]["prc_1"]; !proto.Equal(row, p) {
		t.Errorf("the list has %v", row)
	}
	nobody := startSession("prc_2", "ses_1-a")
	nobody.UserId = ""
	if p := l.must(nobody).(*computerv1.Process); p.GetUserId() != "" {
		t.Errorf("admitted %v", p)
	}
	if len(l.audit) > 0 {
		t.Errorf("the audit log has %v", l.audit)
	}
	l.must(&computerv1.ReportProcessEnded{ProcessId: "prc_1", Reason: "lost"})
	if len(l.state.GetProcesses()) != 1 || len(l.rows[computer.ProcessList]) != 1 {
		t.Errorf("after its end: %v", l.state.GetProcesses())
	}
}

// TestStartProcessOfApp checks that the process has the app as its actor, and is not in the audit log.
func TestStartProcessOfApp(t *testing.T) {
	l := newActive(t)
	p := l.must(startApp("prc_1", "app_1-a")).(*computerv1.Process)
	if p.GetActor() != "api-key:app_1-a" || p.GetAppId() != "app_1-a" || p.GetSessionId() != "" || p.GetUserId() != "usr_2" {
		t.Errorf("admitted %v", p)
	}
	if row := l.rows[computer.ProcessList]["prc_1"]; !proto.Equal(row, p) {
		t.Errorf("the list has %v", row)
	}
	if len(l.audit) > 0 {
		t.Errorf("the audit log has %v", l.audit)
	}
}

// TestProcessesHaveSeparateLimits fills a computer with processes of sessions, of apps and of members.
func TestProcessesHaveSeparateLimits(t *testing.T) {
	l := newActive(t)
	for i := range computer.MaxSessionProcesses {
		l.must(startSession(fmt.Sprintf("prc_s%d", i), "ses_1"))
	}
	for i := range computer.MaxAppProcesses {
		l.must(startApp(fmt.Sprintf("prc_a%d", i), "app_1"))
	}
	for i := range computer.MaxProcesses {
		if _, err := l.as(owner, start(fmt.Sprintf("prc_%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	for name, command := range map[string]*computerv1.StartProcess{
		"session": startSession("prc_s", "ses_2"), "app": startApp("prc_a", "app_2"),
		"terminal": start("prc_x"), "exec": startOf(computerv1.ProcessKind_PROCESS_KIND_EXEC, "prc_x"),
	} {
		if _, err := l.as(entity.Platform(), command); entitytest.Code(err) != entity.Unavailable {
			t.Errorf("one process of kind %s too many: %v", name, err)
		}
	}
	if most := computer.Kind.Lists[computer.ProcessList].Most; len(l.rows[computer.ProcessList]) > most {
		t.Errorf("%d rows in a list with pages of %d", len(l.rows[computer.ProcessList]), most)
	}
	l.must(&computerv1.ReportProcessEnded{ProcessId: "prc_s0"})
	if _, err := l.as(entity.Platform(), startApp("prc_a", "app_2")); entitytest.Code(err) != entity.Unavailable {
		t.Errorf("a process of an app in place of one of a session: %v", err)
	}
	l.must(startSession("prc_s", "ses_2"))
}

func TestStartProcessIsRefused(t *testing.T) {
	full := newActive(t)
	for i := range computer.MaxProcesses {
		full.must(start(fmt.Sprintf("prc_%d", i)))
	}
	foreign, foreignUser := start("prc_1"), start("prc_1")
	foreign.SessionId, foreignUser.UserId = "ses_1", "usr_2"
	foreignApp, appOfSession, sessionOfApp := start("prc_1"), startSession("prc_1", "ses_1"), startApp("prc_1", "app_1")
	foreignApp.AppId, appOfSession.AppId, sessionOfApp.SessionId = "app_1", "app_1", "ses_1"
	longUser, longAppUser := startSession("prc_1", "ses_1"), startApp("prc_1", "app_1")
	longAppUser.UserId = strings.Repeat("u", 65)
	longUser.UserId = strings.Repeat("u", 65)
	restoring := newActive(t)
	restoring.must(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bak_1"})
	if _, err := restoring.as(owner, start("prc_1")); err != nil {
		t.Errorf("during a backup: %v", err)
	}
	restoring.must(&computerv1.ReportBackedUp{TaskId: "tsk_2", Backup: &computerv1.Backup{}})
	restoring.must(&computerv1.Restore{TaskId: "tsk_3", BackupId: "bak_1"})
	lost := newActive(t)
	lost.must(&computerv1.ReportMissing{At: 1})
	lost.must(&computerv1.ReportMissing{At: 2})
	for name, test := range map[string]struct {
		on      *stored
		command *computerv1.StartProcess
		code    entity.Code
	}{
		"no computer":        {newStored(t), start("prc_1"), entity.Unavailable},
		"lost":               {lost, start("prc_1"), entity.Unavailable},
		"restoring":          {restoring, start("prc_2"), entity.Unavailable},
		"too many processes": {full, start("prc_x"), entity.Unavailable},
		"no id":              {newActive(t), start(""), entity.InvalidRequest},
		"long id":            {newActive(t), start(strings.Repeat("a", 65)), entity.InvalidRequest},
		"no program":         {newActive(t), &computerv1.StartProcess{ProcessId: "prc_1", Kind: 1}, entity.InvalidRequest},
		"no kind":            {newActive(t), &computerv1.StartProcess{ProcessId: "prc_1", Program: "sh"}, entity.InvalidRequest},
		"unknown kind":       {newActive(t), startOf(77, "prc_1"), entity.InvalidRequest},
		"session of another": {newActive(t), foreign, entity.InvalidRequest},
		"user of another":    {newActive(t), foreignUser, entity.InvalidRequest},
		"no session":         {newActive(t), startSession("prc_1", ""), entity.InvalidRequest},
		"long session":       {newActive(t), startSession("prc_1", strings.Repeat("s", 65)), entity.InvalidRequest},
		"session of a path":  {newActive(t), startSession("prc_1", "../ses"), entity.InvalidRequest},
		"long user":          {newActive(t), longUser, entity.InvalidRequest},
		"app of another":     {newActive(t), foreignApp, entity.InvalidRequest},
		"app of a session":   {newActive(t), appOfSession, entity.InvalidRequest},
		"session of an app":  {newActive(t), sessionOfApp, entity.InvalidRequest},
		"no app":             {newActive(t), startApp("prc_1", ""), entity.InvalidRequest},
		"long app":           {newActive(t), startApp("prc_1", strings.Repeat("a", 65)), entity.InvalidRequest},
		"app of a path":      {newActive(t), startApp("prc_1", "../app"), entity.InvalidRequest},
		"long user of app":   {newActive(t), longAppUser, entity.InvalidRequest},
	} {
		var refusal *entity.Error
		if _, err := test.on.as(owner, test.command); !errors.As(err, &refusal) || refusal.Code != test.code {
			t.Errorf("%s: %v, want %s", name, err, test.code)
		}
	}
}

func TestStartProcessRequiresServices(t *testing.T) {
	access, err := computer.Kind.Access(start("prc_1"))
	if err != nil {
		t.Fatal(err)
	}
	var asked entity.Need
	if err := access.Authorize(owner, func(n entity.Need) error { asked = n; return nil }); err != nil {
		t.Fatal(err)
	}
	if !asked.Changes || len(asked.Any) != 1 || asked.Any[0] != entity.Services {
		t.Errorf("asked for %+v", asked)
	}
}
