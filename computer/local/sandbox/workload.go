package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// gateFD is the descriptor of the gate, where a process waits for the server. reportFD is the descriptor for the status
// that a monitor reports.
const (
	gateFD   = 3
	reportFD = 4
)

// The first byte of a message of a process on its gate.
const (
	gateArrived  = 'a'
	gateEntered  = 'e'
	gateOutside  = 'o'
	gateTerminal = 't'
	gateRefused  = 'r'
)

// gateEnter is the message of the server to a process at its gate with the entrances of its control group, and gateEntered or gateOutside the
// answer.
const gateEnter = 'g'

// maxOpenFiles is the limit of files that a process may have open, if the server's own limit is not lower.
const maxOpenFiles = 65536

// runWorkload is the life of a process before its program runs. It reports its process id to the server, waits until the server
// has put it into its control group and has attributed it, gives up all privileges and executes the program. The gate is
// closed by that, which tells the server of the success.
func runWorkload() error {
	if err := limitResources(); err != nil { // first, because a process that is not dumpable may not write to its /proc
		return err
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	gate, err := openSocket(os.NewFile(gateFD, "gate"))
	if err != nil {
		return err
	}
	if _, err := gate.Write([]byte{gateArrived}); err != nil {
		return err
	}
	if err := enterGroup(gate); err != nil {
		return err
	}
	var s spec
	if err := receiveLong(gate, &s); err != nil {
		return err
	}
	if s.Version != wireVersion {
		return fmt.Errorf("the server speaks version %d and not %d", s.Version, wireVersion)
	}
	err = execute(gate, &s)
	refused := refusal{Message: err.Error()}
	if invalid, is := errors.AsType[*invalidError](err); is {
		refused = refusal{Invalid: true, Message: invalid.message}
	}
	if _, err := gate.Write([]byte{gateRefused}); err != nil {
		return err
	}
	return errors.Join(err, sendLong(gate, refused))
}

// enterGroup moves this thread, which executes the program, to a control group. The server sends the entrances of the group.
func enterGroup(gate socket) error {
	kind, files, _, err := gate.receiveByte()
	if err != nil {
		return err
	}
	defer closeAll(files)
	if kind != gateEnter {
		return errors.New("the server has sent an unexpected message")
	}
	answer := byte(gateEntered)
	for _, file := range files {
		if _, err := file.WriteString("0"); err != nil {
			answer = gateOutside // the server then does it
		}
	}
	_, err = gate.Write([]byte{answer})
	return err
}

// An invalidError says that a spec cannot be run, as against a failure of the computer.
type invalidError struct{ message string }

func (e *invalidError) Error() string { return e.message }

// execute becomes the program. It returns only if that fails.
func execute(gate socket, s *spec) error {
	if err := limitProcesses(s.MaxProcesses); err != nil {
		return err
	}
	if err := becomeUser(s); err != nil {
		return err
	}
	if s.Terminal != nil {
		if err := openTerminal(gate, s.Terminal); err != nil {
			return fmt.Errorf("cannot open a terminal: %w", err)
		}
	}
	if err := changeFolder(s.Drive, s.Cwd); err != nil {
		return &invalidError{fmt.Sprintf("the working directory %q cannot be used: %v", s.Cwd, err)}
	}
	program, err := findProgram(s)
	if err != nil {
		return err
	}
	if err := restrictFiles(s); err != nil {
		return fmt.Errorf("cannot restrict the files: %w", err)
	}
	if err := restrictCalls(); err != nil {
		return fmt.Errorf("cannot restrict the system calls: %w", err)
	}
	err = syscall.Exec(program, s.Argv, s.Env)
	return &invalidError{fmt.Sprintf("the program %q cannot be executed: %v", s.Argv[0], err)}
}

// limitResources limits the resources that the control group does not limit, and makes the kernel prefer this process if the
// machine is out of memory.
func limitResources() error {
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	limit := min(files.Max, maxOpenFiles)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return os.NewSyscallError("setrlimit", err)
	}
	unix.Umask(0o022)
	return RaiseOOMScore(os.Getpid())
}

// oomScore is the oom_score_adj of processes of computers. The server's score is 0 or less.
const oomScore = "500"

// RaiseOOMScore makes the kernel prefer a process to the server if the machine is out of memory. If the caller has CAP_SYS_RESOURCE, the
// kernel refuses a lower value to the process and its descendants from then on, so the server calls it again for a process that waits
// at its gate. Landlock refuses the same where the server does not have the capability (restrictFiles).
func RaiseOOMScore(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(oomScore), 0)
}

// limitProcesses limits the processes of the user, if control groups do not.
func limitProcesses(most int) error {
	if most == 0 {
		return nil
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	limit.Max = min(limit.Max, uint64(most))
	limit.Cur = limit.Max
	return os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_NPROC, &limit))
}

// becomeUser gives up all privileges for good.
func becomeUser(s *spec) error {
	uid := s.UID
	switch {
	case s.Unisolated && uid != 0: // there is nothing that this user could give up
	case os.Getuid() == uid:
		if err := limitCapabilities(nil); err != nil {
			return err
		}
	default:
		if err := boundCapabilities(nil); err != nil {
			return err
		}
		if err := setUser(uintptr(uid)); err != nil {
			return err
		}
		if err := setCapabilities(nil); err != nil {
			return err
		}
	}
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// setUser gives the calling thread another user and group, without other groups. The functions of package syscall would interrupt all
// threads, which takes longer than everything else; the others end when the program is executed.
func setUser(id uintptr) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, id, id, id); errno != 0 {
		return os.NewSyscallError("setresgid", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id); errno != 0 {
		return os.NewSyscallError("setresuid", errno)
	}
	return nil
}

// openTerminal makes a new terminal the standard streams and the controlling terminal, and passes its other end to the server.
func openTerminal(gate socket, size *unix.Winsize) error {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer master.Close()
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return os.NewSyscallError("ioctl TIOCSPTLCK", err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size); err != nil {
		return os.NewSyscallError("ioctl TIOCSWINSZ", err)
	}
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return os.NewSyscallError("ioctl TIOCGPTPEER", errno)
	}
	for standard := range 3 {
		if err := unix.Dup3(int(slave), standard, 0); err != nil {
			return os.NewSyscallError("dup3", err)
		}
	}
	if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
		return os.NewSyscallError("ioctl TIOCSCTTY", err)
	}
	_, _, err = gate.WriteMsgUnix([]byte{gateTerminal}, unix.UnixRights(fd), nil)
	return err
}

// changeFolder changes to a folder of the drive. Symbolic links must not leave the drive.
func changeFolder(drivePath, path string) error {
	drive, err := unix.Open(drivePath, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(drive)
	folder, err := unix.Openat2(drive, path, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.EXDEV):
		return errors.New("it is outside of the drive")
	case err != nil:
		return err
	}
	defer unix.Close(folder)
	return unix.Fchdir(folder)
}

// findProgram looks a program up in the PATH of the process.
func findProgram(s *spec) (string, error) {
	path := ""
	for _, variable := range s.Env {
		if value, is := strings.CutPrefix(variable, "PATH="); is {
			path = value
		}
	}
	if err := os.Setenv("PATH", path); err != nil {
		return "", err
	}
	program, err := exec.LookPath(s.Argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", &invalidError{fmt.Sprintf("the program %q cannot be executed: %v", s.Argv[0], errors.Unwrap(err))}
	}
	return program, nil
}
