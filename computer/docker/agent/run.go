package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/local/sandbox"
)

// The lines that "run", "dial" and "listen" write before anything else. A line is one of these, a space and a text.
const (
	// Held: run waits for a line on its standard input. The text is its Identity.
	Held = "held"
	// Started: everything that follows is of the program or of the Mux. The text of "dial" is its Identity. The text of "listen" is the
	// port, a space and its Identity.
	Started = "started"
	// Refused: the arguments cannot be used. The text says why.
	Refused = "refused"
	// Unreachable: "listen" has failed. The text has the reason.
	Unreachable = "unreachable"
)

// run holds the process until the server sends a line, and then replaces it by the program argv in the folder cwd of the
// drive. It returns only if that fails.
//
// While it is held, the process runs no code but the agent's: other processes of the container cannot trace it, and a static
// program does not read the variables that make the dynamic linker load code.
func run(s streams, cwd string, isTerminal bool, argv []string) int {
	// The kernel ends the programs first if memory is short, not init.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
	if err := errors.Join(protect(), unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)); err != nil {
		return s.fail("cannot prepare the process: " + err.Error())
	}
	if err := hold(s, isTerminal); err != nil {
		return s.fail("the server has gone: " + err.Error())
	}
	program, err := prepare(cwd, argv[0])
	if err == nil {
		runtime.LockOSThread()
		// The files of a drive belong to the user of the server, and the engine does not mount it nosuid.
		err = errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), sandbox.RestrictTracing(), sandbox.RestrictCalls())
	}
	if err != nil {
		s.writeLine(Refused, strings.ReplaceAll(err.Error(), "\n", " "))
		return failed
	}
	s.writeLine(Started, "")
	err = syscall.Exec(program, argv, os.Environ())
	s.fail(fmt.Sprintf("cannot run %s: %v", program, err))
	const notExecutable = 126
	return notExecutable
}

// hold writes the process's identity, and waits for a line. A terminal does not echo the line.
func hold(s streams, isTerminal bool) error {
	self, err := readProcess(os.Getpid())
	if err != nil {
		return err
	}
	if isTerminal {
		restore, err := silence(s.in)
		if err != nil {
			return err
		}
		defer restore()
	}
	s.writeLine(Held, Identity{self.pid, self.started})
	// It reads single bytes, since everything after the line is for the program.
	for b := make([]byte, 1); b[0] != '\n'; {
		if _, err := s.in.Read(b); err != nil {
			return err
		}
	}
	return nil
}

// silence turns off the echo of the terminal until restore is called.
func silence(terminal *os.File) (restore func(), err error) {
	before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	silent := *before
	silent.Lflag &^= unix.ECHO | unix.ECHONL
	if err := unix.IoctlSetTermios(int(terminal.Fd()), unix.TCSETS, &silent); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(int(terminal.Fd()), unix.TCSETS, before) }, nil
}

// prepare changes to the working directory, and looks up the program.
func prepare(cwd, program string) (path string, err error) {
	if err := os.Chdir(DriveDir + "/" + cwd); err != nil {
		return "", fmt.Errorf("the working directory %q cannot be used: %w", cwd, reason(err))
	}
	// The kernel's answer, not $PWD: where the links have led.
	buffer := make([]byte, unix.PathMax)
	n, err := unix.Getcwd(buffer)
	if err != nil {
		return "", err
	}
	if at := string(buffer[:n-1]); at != DriveDir && !strings.HasPrefix(at, DriveDir+"/") {
		return "", fmt.Errorf("the working directory %q is outside of the drive", cwd)
	}
	path, err = exec.LookPath(program)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", fmt.Errorf("the program %q cannot be run: %w", program, reason(err))
	}
	return path, nil
}

// reason returns the error without the operation and the path.
func reason(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var program *exec.Error
	if errors.As(err, &program) {
		return program.Err
	}
	return err
}
