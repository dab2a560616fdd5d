package computer_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/entity/entitytest"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var rules = entitytest.Rules[*computerv1.Computer, computerv1.Command, computerv1.Event]{
	Decide: computer.Decide, Evolve: computer.Evolve,
}

var owner = &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1"}

// stored is a computer with the rows of its lists, as the journal would store them.
type stored struct {
	t       rapid.TB
	now     time.Time
	version uint64
	state   *computerv1.Computer
	events  []computerv1.Event
	rows    map[string]map[string]proto.Message
	audit   []*auditv1.Event
}

func newStored(t rapid.TB) *stored {
	return &stored{t: t, now: time.UnixMilli(1_700_000_000_000), state: computer.Zero("ws_1"), rows: map[string]map[string]proto.Message{}}
}

func (l *stored) call(p *wirev1.Principal) entity.Call {
	return entity.Call{Now: l.now, Identity: "ws_1", Principal: p, Version: l.version + 1}
}

func (l *stored) as(p *wirev1.Principal, c computerv1.Command) (proto.Message, error) {
	l.t.Helper()
	before := l.state
	after, events, err := rules.Execute(l.t, l.call(p), before, c)
	if err != nil {
		return nil, err
	}
	for _, row := range computer.Rows(l.call(p), before, after, c, events) {
		l.put(row)
	}
	reply := computer.Reply(l.call(p), after, c, events)
	l.state, l.version = after, l.version+uint64(len(events))
	l.events = append(l.events, events...)
	l.now = l.now.Add(time.Second)
	return reply, nil
}

func (l *stored) put(row entity.Row) {
	if l.rows[row.List] == nil {
		l.rows[row.List] = map[string]proto.Message{}
	}
	if row.Message == nil {
		delete(l.rows[row.List], row.Key)
		return
	}
	if e, ok := row.Message.(*auditv1.Event); ok {
		if l.rows[row.List][row.Key] != nil {
			l.t.Fatalf("two audit rows of one key")
		}
		l.audit = append(l.audit, e)
	}
	l.rows[row.List][row.Key] = row.Message
}

func (l *stored) must(c computerv1.Command) proto.Message {
	l.t.Helper()
	reply, err := l.as(entity.Platform(), c)
	if err != nil {
		l.t.Fatal(err)
	}
	return reply
}

// newActive returns a computer that was provisioned.
func newActive(t rapid.TB) *stored {
	l := newStored(t)
	l.must(&computerv1.RequestComputer{TaskId: "tsk_1"})
	l.must(&computerv1.ReportProvisioned{TaskId: "tsk_1", VmName: "vm-1", ImageRef: "local"})
	return l
}

// drawCommand draws a command of any type. It uses few ids, so that commands concern the same tasks and backups.
func drawCommand(t *rapid.T, at int64) computerv1.Command {
	task := rapid.SampledFrom([]string{"tsk_1", "tsk_2", "tsk_3", ""}).Draw(t, "task")
	backup := rapid.SampledFrom([]string{"bak_1", "bak_2", ""}).Draw(t, "backup")
	return rapid.SampledFrom([]computerv1.Command{
		&computerv1.RequestComputer{TaskId: task},
		&computerv1.Reprovision{
			TaskId: task, BackupId: backup, DriveReadable: rapid.Bool().Draw(t, "readable"),
			ActiveSessions: rapid.Uint32Range(0, 1).Draw(t, "sessions"),
		},
		&computerv1.BackUp{TaskId: task, BackupId: backup},
		&computerv1.Restore{TaskId: task, BackupId: backup},
		&computerv1.RetireComputer{TaskId: task},
		&computerv1.ReportProvisioned{TaskId: task, VmName: "vm-" + task, ImageRef: "local"},
		&computerv1.ReportBackedUp{TaskId: task, Backup: &computerv1.Backup{SizeBytes: 1}},
		&computerv1.ReportRestored{TaskId: task},
		&computerv1.ReportRetired{TaskId: task},
		&computerv1.ReportFailed{TaskId: task, Reason: "broken"},
		&computerv1.RecordSample{Sample: &computerv1.Sample{At: at}},
		&computerv1.ReportMissing{At: at},
		&computerv1.DescribeComputer{},
		&computerv1.StartProcess{ProcessId: task, Kind: computerv1.ProcessKind_PROCESS_KIND_EXEC, Program: "sh"},
		&computerv1.StartProcess{
			ProcessId: "s" + task, Kind: computerv1.ProcessKind_PROCESS_KIND_SESSION, Program: "agent", SessionId: "ses_1",
		},
		&computerv1.ReportProcessEnded{ProcessId: rapid.SampledFrom([]string{"", "s"}).Draw(t, "kind") + task},
		&computerv1.VerifyBackup{TaskId: task, BackupId: backup},
		&computerv1.CancelTask{TaskId: task},
		&computerv1.SetBackupPolicy{Policy: drawPolicy(t)},
		&computerv1.ApplyNodePolicy{Policy: drawPolicy(t)},
		&computerv1.BackUpOnSchedule{At: rapid.Int64Range(0, 2).Draw(t, "due")},
		&computerv1.ReportCovered{TaskId: task, BackupId: backup, Seq: 3},
		&computerv1.ReportVerified{TaskId: task, Failure: rapid.SampledFrom([]string{"", "damaged"}).Draw(t, "failure")},
	}).Draw(t, "command")
}

func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newStored(t)
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			before := l.state
			_, err := l.as(entity.Platform(), drawCommand(t, l.now.UnixMilli()))
			if err != nil {
				continue
			}
			l.checkLists(before)
		}
		replayed := computer.Zero("ws_1")
		for _, e := range l.events {
			replayed = computer.Evolve(replayed, e)
		}
		if !proto.Equal(replayed, l.state) {
			t.Fatalf("the replayed state is %v, the live state %v", replayed, l.state)
		}
	})
}

// checkLists compares the lists with the state.
func (l *stored) checkLists(before *computerv1.Computer) {
	l.t.Helper()
	s := l.state
	if (s.GetTask() != nil) != (len(l.rows[computer.TaskList]) == 1) || s.GetTask() != nil && !proto.Equal(s.GetTask(), l.rows[computer.TaskList]["task"]) {
		l.t.Fatalf("task %v, rows %v", s.GetTask(), l.rows[computer.TaskList])
	}
	stands := s.GetStatus() == computerv1.Status_STATUS_ACTIVE || s.GetStatus() == computerv1.Status_STATUS_LOST
	if stands != (len(l.rows[computer.PresentList]) == 1) {
		l.t.Fatalf("status %v, rows %v", s.GetStatus(), l.rows[computer.PresentList])
	}
	if len(s.GetBackups()) != len(l.rows[computer.BackupList]) {
		l.t.Fatalf("backups %v, rows %v", s.GetBackups(), l.rows[computer.BackupList])
	}
	if len(s.GetProcesses()) != len(l.rows[computer.ProcessList]) {
		l.t.Fatalf("processes %v, rows %v", s.GetProcesses(), l.rows[computer.ProcessList])
	}
	if s.GetStatus() == computerv1.Status_STATUS_PROVISIONING && s.GetTask() == nil {
		l.t.Fatalf("provisioning without the task: %v", s)
	}
	if before.GetTask() != nil && s.GetTask() != nil && before.GetTask().GetId() != s.GetTask().GetId() &&
		s.GetTask().GetKind() != computerv1.TaskKind_TASK_KIND_RETIRE {
		l.t.Fatalf("a task took the place of another: %v, %v", before.GetTask(), s.GetTask())
	}
	if want := countLogged(l.events); want != len(l.audit) {
		l.t.Fatalf("%d audit rows of %d changes", len(l.audit), want)
	}
}

// countLogged returns the number of events that are in the audit log.
func countLogged(events []computerv1.Event) int {
	n := 0
	state := computer.Zero("ws_1")
	for _, e := range events {
		switch e := e.(type) {
		case *computerv1.BackupTaken, *computerv1.BackupRestored:
			n++
		case *computerv1.ProcessStarted:
			if e.GetProcess().GetKind() != computerv1.ProcessKind_PROCESS_KIND_SESSION {
				n++
			}
		case *computerv1.ComputerProvisioned:
			if state.GetTask().GetKind() == computerv1.TaskKind_TASK_KIND_REPLACE {
				n++
			}
		}
		state = computer.Evolve(state, e)
	}
	return n
}

func provisioned() []computerv1.Command {
	return []computerv1.Command{&computerv1.RequestComputer{TaskId: "tsk_1"}, &computerv1.ReportProvisioned{TaskId: "tsk_1", VmName: "vm-1", ImageRef: "local"}}
}

func TestMissingChecks(t *testing.T) {
	l := newActive(t)
	step := func(c computerv1.Command, want computerv1.Status) {
		t.Helper()
		if l.must(c); l.state.GetStatus() != want {
			t.Errorf("after %v: %v", c, l.state.GetStatus())
		}
	}
	active, lost := computerv1.Status_STATUS_ACTIVE, computerv1.Status_STATUS_LOST
	step(&computerv1.ReportMissing{At: 1}, active)
	step(&computerv1.ReportMissing{At: 1}, active) // the same check, reported again
	step(&computerv1.RecordSample{Sample: &computerv1.Sample{At: 2}}, active)
	step(&computerv1.ReportMissing{At: 3}, active) // a sample came between
	step(&computerv1.ReportMissing{At: 4}, lost)
	step(&computerv1.ReportMissing{At: 5}, lost)
	step(&computerv1.RecordSample{Sample: &computerv1.Sample{At: 6}}, active)
	if len(l.audit) > 0 {
		t.Errorf("audit %v", l.audit)
	}
}

// TestAnnounceLoss checks that a lost computer reports its loss again, and that other computers do not.
func TestAnnounceLoss(t *testing.T) {
	l := newActive(t)
	known := len(l.events)
	l.must(&computerv1.AnnounceLoss{At: 3})
	if len(l.events) != known {
		t.Errorf("a computer that is there: %v", l.events[known:])
	}
	l.must(&computerv1.ReportMissing{At: 1})
	l.must(&computerv1.ReportMissing{At: 2})
	known = len(l.events)
	l.must(&computerv1.AnnounceLoss{At: 3})
	if len(l.events) != known+1 || l.state.GetStatus() != computerv1.Status_STATUS_LOST {
		t.Fatalf("a lost computer: %v", l.events[known:])
	}
	if _, ok := l.events[known].(*computerv1.ComputerLost); !ok {
		t.Errorf("a lost computer: %v", l.events[known])
	}
}

// TestLossAfterTheClockWasAhead checks that a computer that was missed while the clock was ahead is found to be lost at the right time, and that
// its loss is announced again.
func TestLossAfterTheClockWasAhead(t *testing.T) {
	right := time.UnixMilli(1_700_000_000_000)
	ahead := right.Add(365 * 24 * time.Hour)
	for name, second := range map[string]time.Time{"missed while ahead": right, "lost while ahead": ahead.Add(time.Minute)} {
		t.Run(name, func(t *testing.T) {
			l := newActive(t)
			l.must(&computerv1.ReportMissing{At: ahead.UnixMilli()})
			l.must(&computerv1.ReportMissing{At: second.UnixMilli()})
			if l.state.GetStatus() != computerv1.Status_STATUS_LOST {
				t.Fatalf("missed twice: %v", l.state)
			}
			known := len(l.events)
			announce := &computerv1.AnnounceLoss{At: right.Add(time.Hour).UnixMilli()}
			l.must(announce)
			l.must(announce) // repeated
			if len(l.events) != known+1 {
				t.Errorf("announced by %v", l.events[known:])
			}
		})
	}
	l := newActive(t)
	l.must(&computerv1.ReportMissing{At: right.UnixMilli()})
	l.must(&computerv1.ReportMissing{At: right.Add(-time.Minute).UnixMilli()})
	if l.state.GetStatus() != computerv1.Status_STATUS_ACTIVE {
		t.Error("lost after a late report of an earlier check")
	}
}

// TestTelemetryKeepsOneDay checks that samples replace those of the day before.
func TestTelemetryKeepsOneDay(t *testing.T) {
	l := newActive(t)
	for i := range 2*int64(computer.SlotsPerDay) + 3 {
		l.must(&computerv1.RecordSample{Sample: &computerv1.Sample{At: i * 15_000}})
	}
	rows := l.rows[computer.Telemetry]
	oldest := int64(1 << 62)
	for _, row := range rows {
		oldest = min(oldest, row.(*computerv1.Sample).GetAt())
	}
	if len(rows) != 5760 || oldest != (int64(computer.SlotsPerDay)+3)*15_000 {
		t.Errorf("%d rows from %d", len(rows), oldest)
	}
}

func TestOneTaskAtATime(t *testing.T) {
	l := newActive(t)
	l.must(&computerv1.BackUp{TaskId: "tsk_2", BackupId: "bak_1"})
	for _, c := range []computerv1.Command{
		&computerv1.BackUp{TaskId: "tsk_3", BackupId: "bak_2"},
	} {
		if _, err := l.as(entity.Platform(), c); entitytest.Code(err) != entity.Unavailable || err.(*entity.Error).RetryAfter == 0 {
			t.Errorf("%v: %v", c, err)
		}
	}
	if _, err := l.as(entity.Platform(), &computerv1.Restore{TaskId: "tsk_3", BackupId: "bak_2"}); entitytest.Code(err) != entity.NotFound {
		t.Errorf("a backup that there is none of: %v", err)
	}
	l.must(&computerv1.ReportFailed{TaskId: "tsk_1", Reason: "late"})
	if l.state.GetTask() == nil {
		t.Error("another task's failure ended it")
	}
	l.must(&computerv1.ReportFailed{TaskId: "tsk_2", Reason: "no bucket"})
	if l.state.GetTask() != nil || l.state.GetFailed().GetReason() != "no bucket" {
		t.Errorf("state %v", l.state)
	}
	l.must(&computerv1.BackUp{TaskId: "tsk_4", BackupId: "bak_1"})
	l.must(&computerv1.RetireComputer{TaskId: "tsk_5"})
	l.must(&computerv1.ReportBackedUp{TaskId: "tsk_4", Backup: &computerv1.Backup{}})
	l.must(&computerv1.ReportRetired{TaskId: "tsk_5"})
	if l.state.GetStatus() != computerv1.Status_STATUS_UNSPECIFIED || len(l.state.GetBackups()) > 0 {
		t.Errorf("retired: %v", l.state)
	}
}

func TestOldestBackupsAreDropped(t *testing.T) {
	l := newActive(t)
	for i := range computer.MaxBackups + 2 {
		task := fmt.Sprintf("tsk_b%d", i)
		l.must(&computerv1.BackUp{TaskId: task, BackupId: fmt.Sprintf("bak_%d", i)})
		l.must(&computerv1.ReportBackedUp{TaskId: task, Backup: &computerv1.Backup{}})
	}
	if n := len(l.state.GetBackups()); n != computer.MaxBackups || l.state.GetBackups()["bak_1"] != nil || l.state.GetBackups()["bak_2"] == nil {
		t.Errorf("%d backups", n)
	}
	if n := len(l.rows[computer.BackupList]); n != computer.MaxBackups {
		t.Errorf("%d rows", n)
	}
	last := l.events[len(l.events)-1].(*computerv1.BackupTaken)
	if len(last.GetDropped()) != 1 || last.GetDropped()[0].GetId() != "bak_1" {
		t.Errorf("dropped %v", last.GetDropped())
	}
}

func TestAccess(t *testing.T) {
	member := &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1"}
	for _, test := range []struct {
		command computerv1.Command
		need    string
	}{
		{&computerv1.Reprovision{}, entity.Admin},
		{&computerv1.BackUp{}, ""},
		{&computerv1.ReportProvisioned{}, ""},
		{startOf(computerv1.ProcessKind_PROCESS_KIND_EXEC, "prc_1"), entity.Services},
		{startSession("prc_1", "ses_1"), ""},
		{startApp("prc_1", "app_1"), ""},
	} {
		access, err := computer.Kind.Access(test.command)
		if err != nil {
			t.Fatal(err)
		}
		var asked entity.Need
		err = access.Authorize(member, func(need entity.Need) error { asked = need; return nil })
		if test.need == "" {
			if entitytest.Code(err) != entity.Forbidden {
				t.Errorf("%T of a member: %v", test.command, err)
			}
			continue
		}
		if err != nil || !asked.Changes || len(asked.Any) != 1 || asked.Any[0] != test.need {
			t.Errorf("%T needs %v, %v", test.command, asked, err)
		}
	}
}

func TestReact(t *testing.T) {
	for name, test := range map[string]struct {
		identity string
		event    proto.Message
		want     []entity.Reaction
	}{
		"computer lost":  {"ws_1", &computerv1.ComputerLost{}, []entity.Reaction{entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.ReportUnhealthy{})}},
		"computer found": {"ws_1", &computerv1.ComputerFound{}, []entity.Reaction{entity.Send(entity.KindWorkspace, "ws_1", &workspacev1.ReportReady{})}},
	} {
		t.Run(name, func(t *testing.T) {
			entitytest.EqualReactions(t, computer.Kind.React(test.identity, test.event), test.want)
		})
	}
}
