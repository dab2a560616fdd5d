package testmachine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Build builds a program of the module in a folder of the repository, such as tests/s3/versitygw, and returns the path of the binary
// in the folder bin. The go command reuses the binary while the module is unchanged. A file lock serializes the tests of several
// packages.
func Build(t testing.TB, module, program string) string {
	t.Helper()
	file, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("go env: %v", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(file)))
	bin := filepath.Join(root, "bin")
	binary := filepath.Join(bin, filepath.Base(module))
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(binary+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", "build", "-o", binary, program)
	command.Dir = filepath.Join(root, module)
	command.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly", "GOWORK=off")
	if out, err := command.CombinedOutput(); err != nil {
		Lacks(t, fmt.Sprintf("left out: %s cannot be built: %v: %s", program, err, out))
	}
	return binary
}
