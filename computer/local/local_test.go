package local_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/computer/computertest"
	"github.com/atelier-run/atelier/computer/local"
	"github.com/atelier-run/atelier/entity"
)

// drives is a fake of local.Drives. lost has the existing drives: true if a drive cannot be read. full is the error of
// Provision and CheckSpace. CheckSpace calls check if check is not nil.
type drives struct {
	dir  string
	mu   sync.Mutex
	lost map[string]bool
	full error

	check func(suspend func(bool)) error
}

func (d *drives) Provision(_ context.Context, id string) error {
	d.set(id, false)
	if d.dir != "" {
		if err := os.MkdirAll(filepath.Join(d.dir, id, "files"), 0o755); err != nil {
			return err
		}
	}
	return d.full
}

func (d *drives) Usage(id string) (used, total uint64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if lost, there := d.lost[id]; lost || !there {
		return 0, 0, errors.New("no such drive")
	}
	return 3 << 20, 4 << 20, nil
}

func (d *drives) CheckSpace(_ context.Context, _ string, suspend func(bool)) error {
	d.mu.Lock()
	check, full := d.check, d.full
	d.mu.Unlock()
	if check != nil && suspend != nil {
		return check(suspend)
	}
	return full
}

func (d *drives) WatchSpace() (<-chan struct{}, func()) { return nil, func() {} }

func (d *drives) Dir() string { return d.dir }

func (d *drives) set(id string, lost bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost[id] = lost
}

func TestConformance(t *testing.T) {
	d := &drives{lost: map[string]bool{}}
	driver, err := local.New(local.Options{Drives: d})
	if err != nil {
		t.Fatal(err)
	}
	computertest.Test(t, driver, func(id string) { d.set(id, true) }, func(id string) { d.set(id, false) })
}

// writeProc writes files like the files of /proc to a folder. busy and idle are in hundredths of seconds.
func writeProc(t *testing.T, dir string, busy, idle int) {
	t.Helper()
	for name, content := range map[string]string{
		"stat":    fmt.Sprintf("cpu  %d 0 0 %d 0 0 0 0 0 0\nbtime 1\n", busy, idle),
		"meminfo": "MemTotal: 4096 kB\nMemFree: 512 kB\nMemAvailable: 1024 kB\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSampleMeasuresMachine(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		writeProc(t, dir, 100, 300)
		driver, err := local.New(local.Options{Drives: &drives{lost: map[string]bool{"ws_1": false}}, Proc: dir})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			pause      time.Duration
			busy, idle int
			want       float64
		}{
			{0, 100, 300, 25},
			{15 * time.Second, 190, 310, 90},
			{100 * time.Millisecond, 190, 1310, 90}, // within measureEvery: the last measurement
			{15 * time.Second, 190, 2310, 0},
		} {
			writeProc(t, dir, step.busy, step.idle)
			time.Sleep(step.pause)
			s, err := driver.Sample(t.Context(), "ws_1")
			if err != nil || math.Round(s.GetCpuPct()) != step.want {
				t.Errorf("step %v: got %v, %v", step, s, err)
			}
			if s.GetMemTotalMb() != 4 || s.GetMemUsedMb() != 3 || s.GetDiskUsedMb() != 3 || s.GetDiskTotalMb() != 4 {
				t.Errorf("sample %v", s)
			}
		}
		if err := os.Remove(filepath.Join(dir, "stat")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s, err := driver.Sample(t.Context(), "ws_1"); err != nil || s.GetCpuPct() != 0 || s.GetMemTotalMb() != 4 {
			t.Errorf("without /proc/stat: got %v, %v, want CpuPct 0 and the memory", s, err)
		}
	})
}

// TestProvisionOnFullDiskIsNoRefusal verifies that provisioning is retried, because space may become free.
func TestProvisionOnFullDiskIsNoRefusal(t *testing.T) {
	driver, err := local.New(local.Options{Drives: &drives{
		lost: map[string]bool{}, full: entity.Errorf("insufficient_storage", "no space is left"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = driver.Provision(t.Context(), "ws_1", "vm-1")
	if refusal, is := errors.AsType[*entity.Error](err); err == nil || is {
		t.Errorf("got %v, want an error that is not a refusal; refusal: %v", err, refusal)
	}
}
