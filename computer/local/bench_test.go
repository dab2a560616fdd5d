package local_test

import (
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// BenchmarkComputer measures the time from the first process of a computer to its end, with the start and the stop of the computer. It
// divides the time by the time of a process in namespaces by unshare, without a root file system, limits or filters.
func BenchmarkComputer(b *testing.B) {
	d, _ := openHost(b, nil)
	if _, err := d.Provision(b.Context(), "ws_1", "vm-1"); err != nil {
		b.Fatal(err)
	}
	compare(b, func() {
		p, err := d.Start(b.Context(), "ws_1", computer.Spec{ID: "p1", Group: "terminal", Argv: []string{"true"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := d.Stop(b.Context(), "ws_1"); err != nil {
			b.Fatal(err)
		}
	}, "unshare", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "--cgroup", "--mount-proc", "true")
}

// BenchmarkProcess measures a process in a running computer from Start to the end of Wait. It divides the time by the time of a
// process that nsenter starts in the same namespaces, without limits or filters.
func BenchmarkProcess(b *testing.B) {
	d, _ := openHost(b, nil)
	if _, err := d.Provision(b.Context(), "ws_1", "vm-1"); err != nil {
		b.Fatal(err)
	}
	var pid int
	_, err := d.Start(b.Context(), "ws_1", computer.Spec{
		ID: "held", Group: "terminal", Argv: []string{"cat"}, Attribute: func(of int) error { pid = of; return nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	compare(b, func() {
		p, err := d.Start(b.Context(), "ws_1", computer.Spec{ID: "p1", Group: "terminal", Argv: []string{"echo", "text"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadAll(p.Streams().Stdout); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}, "nsenter", "--target", strconv.Itoa(pid), "--mount", "--net", "--ipc", "--uts", "--pid", "--cgroup", "echo", "text")
}

// compare reports the time of f, and its ratio to the time of a command in the same run.
func compare(b *testing.B, f func(), command ...string) {
	b.Helper()
	if os.Geteuid() != 0 {
		testmachine.Lacks(b, "the command needs root")
	}
	var own, other time.Duration
	for b.Loop() {
		began := time.Now()
		f()
		own += time.Since(began)
		began = time.Now()
		if output, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, output)
		}
		other += time.Since(began)
	}
	b.ReportMetric(float64(own.Microseconds())/float64(b.N)/1000, "ms")
	b.ReportMetric(float64(own)/float64(other), "x-"+command[0])
}
