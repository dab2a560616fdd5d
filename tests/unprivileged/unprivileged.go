// Package unprivileged runs tests under the modes of files, also where the tests run as root, because no mode stops root.
package unprivileged

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// nobody is the user and the group without rights.
const nobody = 65534

// Run reports whether the caller runs the test. As root, it runs the test in a child process of the user nobody, and returns false. A
// failure of the child process is a failure of the test.
func Run(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	dir, err := os.MkdirTemp("/tmp", "unprivileged")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	child.Dir, child.Env = dir, append(os.Environ(), "TMPDIR="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if output, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	return false
}
