package local_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/atelier-run/atelier/computer/computertest"
	"github.com/atelier-run/atelier/computer/local"
)

// openHost returns a driver that runs processes, until the end of the test. It skips the test if this machine cannot isolate
// processes; on a machine that builds changes that is a failure.
func openHost(t testing.TB, change func(*local.Options)) (*local.Driver, *drives) {
	t.Helper()
	files := &drives{dir: t.TempDir(), lost: map[string]bool{}}
	name := fnv.New64a()
	_, _ = name.Write([]byte(files.dir))
	o := local.Options{Drives: files, Node: fmt.Sprintf("test-%x", name.Sum64())}
	if change != nil {
		change(&o)
	}
	driver, err := local.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := driver.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	if _, err := driver.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if reason := driver.Report().Isolation; reason != "" && !o.AllowUnisolated {
		if os.Getenv("CI") == "true" {
			t.Fatalf("this machine cannot isolate processes: %s", reason)
		}
		t.Skipf("this machine cannot isolate processes: %s", reason)
	}
	return driver, files
}

// listen is a Perl program that listens on a port and copies the first connection to its output. Perl is on every Debian.
const listen = `use IO::Socket::INET; $|=1; my $s=IO::Socket::INET->new(LocalAddr=>"127.0.0.1",LocalPort=>%d,Listen=>5,ReuseAddr=>1) or die $!;
print "ready\n"; my $c=$s->accept; while (sysread($c,my $b,4096)) { print $b }`

func subject(d *local.Driver, files *drives) computertest.Subject {
	limited := d.Report().Limits == ""
	return computertest.Subject{
		Driver: d, Host: d, Isolated: d.Report().Isolation == "", LimitsMemory: limited, LimitsProcesses: limited, Freezes: true,
		Files: func(workspaceID string) string { return filepath.Join(files.dir, workspaceID, "files") },
		Serve: func(port int) []string { return []string{"perl", "-e", fmt.Sprintf(listen, port)} },
	}
}

func TestHostConformance(t *testing.T) {
	d, files := openHost(t, nil)
	t.Logf("%v", d.Report().LogValue())
	computertest.TestHost(t, subject(d, files))
}
