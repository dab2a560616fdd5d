// Package bench measures the product against the minimal cost of the same work, and against its peers.
//
// Every target is a ratio within one run. The variants take turns in slices of about a second, so that changes of the machine's
// speed affect all of them, and the result is the median of the rounds' ratios. Absolute figures are only comparable on the
// same machine.
//
// The load comes from a child process of the test binary (readers.go, loop.go). Its single thread waits for thousands of
// sockets at once, which leaves the processor to the server, and separates the processor times of server and
// clients. All variants get the same load. The benchmarks need Linux, the loopback interface, and a temporary directory on a
// disk: set TMPDIR if /tmp is in memory.
//
// Benchmarks that need other modules are in tests/peers, which uses this package.
package bench

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/limit/machine"
)

// role is the environment variable with the part of a child process.
const role = "ATELIER_BENCH_ROLE"

// Run is the TestMain of a package of benchmarks: it runs them or, in a child process, its part, and returns the exit code.
func Run(m *testing.M) int {
	switch part, of, _ := strings.Cut(os.Getenv(role), " "); part {
	case "app", "edge", "bare":
		machine.TuneMemory()
		return exit(serveChild(part, strings.Fields(of), os.Stdin, os.Stdout))
	case "sleeper":
		return exit(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), newApp()))
	case "readers":
		return exit(serveOrders(os.Stdin, os.Stdout))
	case "member":
		machine.TuneMemory()
		return exit(serveMember(os.Stdin, os.Stdout))
	}
	machine.TuneMemory()
	code := m.Run()
	removeDatabases()
	return code
}

func exit(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const tmpfs = 0x01021994

// Disk returns a new directory on a disk. It fails the benchmark if the temporary directory is in memory.
func Disk(b testing.TB) string {
	dir := b.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		b.Fatal(err)
	}
	if fs.Type == tmpfs {
		b.Fatal("the temporary directory is in memory: set TMPDIR to a directory on a disk")
	}
	return dir
}

// processorTime returns the processor time of this process so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
