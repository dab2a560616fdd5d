package local_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// separator separates the name and the arguments of an attack in the argument "batch".
const separator = "\x1f"

// runAttack runs the attack that the environment names: the test program is the hostile process. It prints "succeeded" or the name of
// the error. The attack "batch" runs the attacks that its arguments name. TestMain calls it.
func runAttack(name string) {
	if name != "batch" {
		report(name, os.Args[1:])
		os.Exit(0)
	}
	for _, one := range os.Args[1:] {
		parts := strings.Split(one, separator)
		report(parts[0], parts[1:])
	}
	os.Exit(0)
}

func report(name string, arguments []string) {
	err := attacks[name](arguments)
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		err = errors.New(unix.ErrnoName(errno))
	}
	if err == nil {
		err = errors.New("succeeded")
	}
	fmt.Println(strings.ReplaceAll(err.Error(), "\n", " "))
}

// attacks are the attacks of hostile processes. An attack that fails returns an error, usually an error with an errno.
var attacks = map[string]func(arguments []string) error{
	"mount":   func([]string) error { return unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "") },
	"remount": func([]string) error { return unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, "") },
	"unmount": func(a []string) error { return unix.Unmount(a[0], unix.MNT_DETACH) },
	"open_tree": func([]string) error {
		_, err := unix.OpenTree(unix.AT_FDCWD, "/usr", unix.OPEN_TREE_CLONE)
		return err
	},
	"chroot":          func([]string) error { return unix.Chroot("/tmp") },
	"user_namespace":  func([]string) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"mount_namespace": func([]string) error { return unix.Unshare(unix.CLONE_NEWNS) },
	"clone_namespace": func([]string) error {
		child := exec.Command("/bin/true")
		child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS}
		return child.Run()
	},
	"enter_namespace": func(a []string) error {
		file, err := os.Open(a[0])
		if err != nil {
			return err
		}
		return unix.Setns(int(file.Fd()), 0)
	},
	"loopback_down": func([]string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq("lo")
		if err != nil {
			return err
		}
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
	},
	// make_device makes a device with the number of an existing device.
	"make_device": func(a []string) error {
		var of unix.Stat_t
		if err := unix.Stat(a[0], &of); err != nil {
			return err
		}
		return unix.Mknod(a[1], of.Mode&unix.S_IFMT|0o600, int(of.Rdev))
	},
	"make_disk": func(a []string) error { return unix.Mknod(a[0], unix.S_IFBLK|0o600, int(unix.Mkdev(8, 0))) },
	"read":      func(a []string) error { return readFile(a[0]) },
	"write":     func(a []string) error { return writeFile(a[0]) },
	"list":      listFolder,
	"link":      func(a []string) error { return os.Link(a[0], a[1]) },
	"rename":    func(a []string) error { return os.Rename(a[0], a[1]) },
	"chown":     func(a []string) error { return os.Chown(a[0], 0, 0) },
	"chmod":     func(a []string) error { return unix.Chmod(a[0], 0o4755) },
	"fchmodat":  func(a []string) error { return unix.Fchmodat(unix.AT_FDCWD, a[0], 0o2755, 0) },
	"fchmodat2": func(a []string) error { return call(unix.SYS_FCHMODAT2, atFDCWD, text(a[0]), 0o4755, 0) },
	"create_setuid": func(a []string) error {
		_, err := unix.Open(a[0], unix.O_CREAT|unix.O_WRONLY, 0o4755)
		return err
	},
	"file_capability": func(a []string) error {
		return unix.Setxattr(a[0], "security.capability", []byte("\x01\x00\x00\x02\xff\xff\xff\xff\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00"), 0)
	},
	// become_root succeeds in a program that runs as root, or can become it.
	"become_root": func([]string) error {
		if os.Geteuid() == 0 {
			return nil
		}
		return syscall.Setuid(0)
	},
	"trace": func(a []string) error {
		return eachProcess(a[0], func(pid int) error { return unix.PtraceSeize(pid) })
	},
	"read_memory": func(a []string) error {
		return eachProcess(a[0], func(pid int) error {
			var into [8]byte
			local := []unix.Iovec{{Base: &into[0], Len: 8}}
			// The beginning of the text of a program that is linked to a fixed address.
			_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
			return err
		})
	},
	"kill": func(a []string) error { return eachProcess(a[0], func(pid int) error { return unix.Kill(pid, 0) }) },
	"limit_process": func(a []string) error {
		return eachProcess(a[0], func(pid int) error {
			return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}, nil)
		})
	},
	"add_key": func([]string) error {
		_, err := unix.AddKey("user", "atelier-test", []byte("secret"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	},
	"user_keyring": func([]string) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true)
		return err
	},
	"dial": func(a []string) error {
		c, err := net.DialTimeout(a[0], a[1], 2*time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	},
	"socket": func(a []string) error {
		var numbers [3]int
		for i, one := range a {
			var err error
			if numbers[i], err = strconv.Atoi(one); err != nil {
				return err
			}
		}
		_, err := unix.Socket(numbers[0], numbers[1], numbers[2])
		return err
	},
	"shared_memory": func(a []string) error {
		key, err := strconv.Atoi(a[0])
		if err != nil {
			return err
		}
		_, err = unix.SysvShmGet(key, 0, 0)
		return err
	},
	"bpf":          func([]string) error { return call(unix.SYS_BPF, 0, 0, 0) },
	"perf":         func([]string) error { return call(unix.SYS_PERF_EVENT_OPEN, 0, 0, 0) },
	"userfaultfd":  func([]string) error { return call(unix.SYS_USERFAULTFD, 0) },
	"kernel_log":   func([]string) error { _, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil); return err },
	"io_uring":     func([]string) error { return call(unix.SYS_IO_URING_SETUP, 1, 0) },
	"clone3":       func([]string) error { return call(unix.SYS_CLONE3, 0, 0) },
	"set_clock":    func([]string) error { return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: -1}) },
	"load_module":  func([]string) error { return unix.FinitModule(-1, "", 0) },
	"reboot":       func([]string) error { return unix.Reboot(0) }, // an invalid command
	"future_call":  func([]string) error { return call(469, 0) },   // file_setattr, which changes the project of a file
	"personality":  func([]string) error { return call(unix.SYS_PERSONALITY, 0x0400000) },
	"handle":       func([]string) error { return call(unix.SYS_OPEN_BY_HANDLE_AT, 0, 0, 0) },
	"filter_files": func([]string) error { _, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF, 0); return err },
	"set_project": func(a []string) error {
		file, err := os.Open(a[0])
		if err != nil {
			return err
		}
		var attributes [28]byte
		if err := call(unix.SYS_IOCTL, file.Fd(), 0x801c581f, uintptr(unsafe.Pointer(&attributes))); err != nil { // FS_IOC_FSGETXATTR
			return err
		}
		return call(unix.SYS_IOCTL, file.Fd(), 0x401c5820, uintptr(unsafe.Pointer(&attributes))) // FS_IOC_FSSETXATTR
	},
	"push_input": func([]string) error {
		letter := byte('x')
		return call(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&letter)))
	},
	// fill writes files until that fails. It is slow, so that it does not occupy the machine.
	"fill": func(a []string) error {
		content := make([]byte, 1<<20)
		slowly := time.NewTicker(5 * time.Millisecond)
		for i := 0; ; i++ {
			if err := os.WriteFile(filepath.Join(a[0], "fill"+strconv.Itoa(i)), content, 0o600); err != nil {
				return err
			}
			<-slowly.C
		}
	},
	// map_removed fills a file that no folder has, keeps it mapped only, and waits.
	"map_removed": func(a []string) error {
		const size = 30 << 20
		file, err := os.OpenFile(a[0], os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		if _, err := file.Write(make([]byte, size)); err != nil {
			return err
		}
		if _, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED); err != nil {
			return err
		}
		if err := errors.Join(os.Remove(a[0]), file.Close()); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	},
	"fill_files": func(a []string) error {
		for i := 0; ; i++ {
			if err := os.WriteFile(filepath.Join(a[0], "file"+strconv.Itoa(i)), nil, 0o600); err != nil {
				return err
			}
		}
	},
	// swap makes a path alternately a folder and a symbolic link to a target.
	"swap": func(a []string) error {
		path, target := a[0], a[1]
		for _, err := range []error{os.Mkdir(path, 0o777), os.Symlink(target, path+".link")} {
			if err != nil {
				return err
			}
		}
		fmt.Println("ready")
		for {
			if err := unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, path+".link", unix.RENAME_EXCHANGE); err != nil && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
	},
}

const atFDCWD = ^uintptr(99) // AT_FDCWD, -100

func text(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		panic(err)
	}
	return uintptr(unsafe.Pointer(p))
}

// call makes a system call. Arguments that are not given are 0.
func call(number uintptr, arguments ...uintptr) error {
	var all [6]uintptr
	copy(all[:], arguments)
	if _, _, errno := unix.Syscall6(number, all[0], all[1], all[2], all[3], all[4], all[5]); errno != 0 {
		return errno
	}
	return nil
}

func readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	n, err := file.Read(make([]byte, 64))
	if n == 0 && errors.Is(err, io.EOF) {
		return errors.New("empty")
	}
	return err
}

// writeFile writes to a file without changing it.
func writeFile(path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

func listFolder(a []string) error {
	entries, err := os.ReadDir(a[0])
	if err == nil && len(entries) == 0 {
		return errors.New("empty")
	}
	return err
}

// eachProcess calls f for processes: "init", or one with the given id. It returns nil if f succeeds for one, and f's last error.
func eachProcess(which string, f func(pid int) error) error {
	if which == "init" {
		return f(1)
	}
	pid, err := strconv.Atoi(which)
	if err != nil {
		return err
	}
	return f(pid)
}

// attackOutside runs an attack on this machine, in a mount namespace of its own, as the control of the experiment.
func attackOutside(t *testing.T, credential *syscall.Credential, program, name string, arguments ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), program, arguments...)
	c.Env = []string{"ATTACK=" + name}
	c.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Credential: credential} // which makes the mounts private
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return strings.TrimSpace(string(out))
}
