// Package bench measures the product against the least that the same work can cost, and against its peers.
//
// Every target is a ratio within one run. The variants take turns in slices of about a second, so that the machine's
// moods meet all of them, and what is reported is the median of the rounds' ratios; absolute figures belong to one
// machine and are there to be compared with each other alone.
//
// Load comes from a child process of the test binary (readers.go, loop.go): one thread that waits for thousands of
// sockets at once, cheap enough to leave the processor to the server, whose own use of it can so be told apart. All
// variants get the same load. The benchmarks need Linux and use the loopback interface and the temporary directory,
// which must be on a disk: set TMPDIR where /tmp is memory.
//
// What needs other modules lies in tests/peers, which uses this package.
package bench

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/atelier-run/atelier/cmd/node"
)

// role names the part that a child process plays.
const role = "ATELIER_BENCH_ROLE"

// Run is the TestMain of a package of benchmarks: it runs them, or plays the part of a child.
func Run(m *testing.M) int {
	switch os.Getenv(role) {
	case "readers":
		return exit(serveOrders(os.Stdin, os.Stdout))
	case "member":
		node.TuneMemory()
		return exit(serveMember(os.Stdin, os.Stdout))
	}
	node.TuneMemory()
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

// Disk is a new directory that is not in memory.
func Disk(b testing.TB) string {
	dir := b.TempDir()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		b.Fatal(err)
	}
	if fs.Type == tmpfs {
		b.Fatal("the temporary directory is in memory: set TMPDIR to one on a disk")
	}
	return dir
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
