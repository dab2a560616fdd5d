package local_test

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/drive/quota"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	"github.com/atelier-run/atelier/tests/race"
	"github.com/atelier-run/atelier/tests/testmachine"
)

func TestHostileForkBomb(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	files := realDrives(t, quota.Limit{})
	d, _ := openHost(t, func(o *local.Options) { o.Drives, o.Limits = files, computer.Limits{Processes: 100} })
	if reason := d.Report().Limits; reason != "" {
		testmachine.Lacks(t, "no limits: "+reason)
	}
	e, other := provision(t, d, files, "ws_1"), provision(t, d, files, "ws_2")
	before := other.start(t, "while read x; do echo $x; done")
	bomb := e.start(t, "bomb() { bomb | bomb & }; echo started; bomb; wait; sleep 1000")
	bomb.expect(t, "started")
	most := 0
	for most < 80 { // the init and the reaper of the computer have threads, too
		used, err := d.Usage(t.Context(), "ws_1")
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range used {
			most = max(most, u.Processes)
		}
	}
	if most > 100 {
		t.Errorf("%d processes", most)
	}
	// The server, the drive and the other computer work beside it.
	if err := put(t, files, "ws_1", "mine", "x"); err != nil {
		t.Errorf("an upload to the drive of the bomb: %v", err)
	}
	if _, err := io.WriteString(before.Streams().Stdin, "hello\n"); err != nil {
		t.Fatal(err)
	}
	before.expect(t, "hello")
	if got := other.run(t, "echo new"); got != "new\n" {
		t.Errorf("a new process of another computer: %q", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := bomb.End(ctx); err != nil {
		t.Fatal(err)
	}
	if got := e.run(t, "echo /proc/[0-9]*"); len(strings.Fields(got)) > 2 { // the init and the shell
		t.Errorf("after the bomb there are %s", got)
	}
}

func TestHostileMemory(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	d, files := openHost(t, func(o *local.Options) {
		o.Limits, o.ScratchBytes = computer.Limits{MemoryBytes: 64 << 20}, 8<<20
	})
	if reason := d.Report().Limits; reason != "" {
		testmachine.Lacks(t, "no limits: "+reason)
	}
	e := provision(t, d, files, "ws_1")
	bystander := e.start(t, "while read x; do echo $x; done")
	if exit := e.start(t, "tail /dev/zero").wait(t); exit.Reason != computer.EndedOutOfMemory {
		t.Errorf("got %+v", exit)
	}
	survivor := e.start(t, "tail /dev/zero; echo survived; read x")
	survivor.expect(t, "survived")
	if n := survivor.OutOfMemory(); n != 1 {
		t.Errorf("%d processes of the group were ended for lack of memory, want 1", n)
	}
	if err := survivor.End(t.Context()); err != nil {
		t.Error(err)
	}
	if exit := survivor.wait(t); exit.Reason != "" {
		t.Errorf("ended on request after a descendant was out of memory: got %+v", exit)
	}
	for _, dir := range []string{"/tmp", "/dev/shm", "/run", "/home/atelier", "/var/tmp"} {
		e.refuses("ENOSPC", "fill", dir)
		e.settle(t)
		e.run(t, "rm "+dir+"/fill*")
	}
	if _, err := io.WriteString(bystander.Streams().Stdin, "hello\n"); err != nil {
		t.Fatal(err)
	}
	bystander.expect(t, "hello")
}

// TestHostileMemoryOfAll has two computers with own limits above the limit of all computers together.
func TestHostileMemoryOfAll(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	const most = 96 << 20
	d, files := openHost(t, func(o *local.Options) {
		o.Limits, o.MaxMemory = computer.Limits{MemoryBytes: 1 << 30}, most
	})
	if reason := d.Report().Limits; reason != "" {
		testmachine.Lacks(t, "no limits: "+reason)
	}
	modest, greedy := provision(t, d, files, "ws_1"), provision(t, d, files, "ws_2")
	bystander := modest.start(t, "while read x; do echo $x; done")
	if exit := greedy.start(t, "tail /dev/zero").wait(t); exit.Reason != computer.EndedOutOfMemory {
		t.Errorf("got %+v", exit)
	}
	if used, limit, err := d.Memory(t.Context(), ""); err != nil || limit != most || used == 0 || used > most {
		t.Errorf("all computers use %d of %d, %v", used, limit, err)
	}
	if _, err := io.WriteString(bystander.Streams().Stdin, "hello\n"); err != nil {
		t.Fatal(err)
	}
	bystander.expect(t, "hello")
}

// TestMemoryOfAllWithoutControlGroups verifies that computers use all memory that is not available on the machine.
func TestMemoryOfAllWithoutControlGroups(t *testing.T) {
	dir := t.TempDir()
	writeProc(t, dir, 0, 1)
	for _, c := range []struct{ most, want uint64 }{{4 << 20, 3 << 20}, {1 << 20, 0}, {0, 0}} {
		driver, _ := openHost(t, func(o *local.Options) { o.Proc, o.MaxMemory = dir, int64(c.most) })
		local.PretendNoControlGroups(driver)
		if used, limit, err := driver.Memory(t.Context(), ""); used != c.want || limit != c.most || err != nil {
			t.Errorf("%d of %d, want %d, %v", used, limit, c.want, err)
		}
	}
}

// realDrives returns drives as the server has them.
func realDrives(t *testing.T, limit quota.Limit) *drive.Drives {
	t.Helper()
	drives, err := drive.New(drive.Options{
		Dir: t.TempDir(), Asker: &drivetest.Activity{}, Quota: limit, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drives.Close(); err != nil {
			t.Error(err)
		}
	})
	return drives
}

// put uploads a file to a drive.
func put(t *testing.T, drives *drive.Drives, workspaceID, path, content string) error {
	t.Helper()
	d, release, err := drives.Open(t.Context(), workspaceID)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	_, _, err = d.Put(t.Context(), path, drive.Upload{Body: strings.NewReader(content), Size: int64(len(content))},
		drive.Change{Author: &activityv1.Author{Actor: "user:1"}})
	return err
}

// TestHostileDisk verifies that a process that fills its drive is ended, that the drive works again when something was deleted, and
// that other drives work all the time.
func TestHostileDisk(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	program, err := os.Stat(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		attack, remove string
		limit          quota.Limit
	}{
		{"fill", "fill*", quota.Limit{Bytes: uint64(program.Size()) + 20<<20}},
		{"fill_files", "file*", quota.Limit{Files: 200}},
	} {
		t.Run(test.attack, func(t *testing.T) {
			drives := realDrives(t, test.limit)
			d, _ := openHost(t, func(o *local.Options) { o.Drives = drives })
			e, other := provision(t, d, drives, "ws_1"), provision(t, d, drives, "ws_2")
			bystander := other.start(t, "while read x; do echo $x; done")
			if err := put(t, drives, "ws_1", "mine", "x"); err != nil {
				t.Fatal(err)
			}
			a := e.begin(t, e.attackSpec(test.attack, "/drive"))
			if exit := a.wait(t); exit.Reason != computer.EndedDiskFull {
				t.Errorf("got %+v", exit)
			}
			if err := put(t, drives, "ws_1", "mine", "y"); err == nil {
				t.Error("an upload to a full drive succeeded")
			}
			if _, err := d.Start(t.Context(), "ws_1", e.spec("true")); err == nil {
				t.Error("a process was started on a full drive")
			}
			if err := put(t, drives, "ws_2", "mine", "x"); err != nil {
				t.Errorf("an upload to another drive: %v", err)
			}
			if _, err := io.WriteString(bystander.Streams().Stdin, "hello\n"); err != nil {
				t.Fatal(err)
			}
			bystander.expect(t, "hello")
			filled, err := filepath.Glob(filepath.Join(e.files, test.remove))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range filled {
				if err := os.Remove(path); err != nil {
					t.Fatal(err)
				}
			}
			awaitSpace(t, drives, "ws_1")
			if got := e.run(t, "echo again"); got != "again\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}

// TestHostileRemovedFiles fills files that no folder has: they count as long as processes have them open or mapped.
func TestHostileRemovedFiles(t *testing.T) {
	race.Skip(t, "it starts hundreds of processes, each of which would begin with the detector's initialization")
	program, err := os.Stat(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	drives := realDrives(t, quota.Limit{Bytes: uint64(program.Size()) + 20<<20})
	d, _ := openHost(t, func(o *local.Options) { o.Drives = drives })
	drives.CountHeld(d.Processes)
	e, second, other := provision(t, d, drives, "ws_1"), provision(t, d, drives, "ws_2"), provision(t, d, drives, "ws_3")
	bystander := other.start(t, "while read x; do echo $x; done")
	attacks := map[string]*attack{
		"open":   e.start(t, "exec 3<>big; rm big; dd if=/dev/zero bs=1M count=30 2>/dev/null >&3; echo held; read x"),
		"mapped": second.begin(t, second.attackSpec("map_removed", "/drive/big")),
	}
	for name, a := range attacks {
		if exit := a.wait(t); exit.Reason != computer.EndedDiskFull {
			t.Errorf("%s: got %+v", name, exit)
		}
	}
	awaitSpace(t, drives, "ws_1")
	if got := e.run(t, "exec 3<>big; rm big; dd if=/dev/zero bs=1M count=10 2>/dev/null >&3; echo held"); got != "held\n" {
		t.Errorf("a file within the quota: %q", got)
	}
	if _, err := io.WriteString(bystander.Streams().Stdin, "hello\n"); err != nil {
		t.Fatal(err)
	}
	bystander.expect(t, "hello")
}

// awaitSpace waits until processes may run on a drive.
func awaitSpace(t *testing.T, drives *drive.Drives, workspaceID string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for drives.CheckSpace(ctx, workspaceID, nil) != nil && ctx.Err() == nil { // the drive is walked at intervals
		<-again.C
	}
}
