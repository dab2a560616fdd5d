package probe

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mostSpied is the greatest process id that spy attacks. Computers of tests have fewer processes.
const mostSpied = 1 << 10

// spied are the folders that processes of a computer write outside of the drive.
var spied = []string{"/tmp", "/var/tmp", "/run", "/home", "/dev/shm", "/private"}

// spy looks for the secret on its standard input in other processes: in the process with a process id, or, for "all", in all processes of
// the process namespace but its first. It prints each way that succeeds, and at last "done".
func spy(which string, in io.Reader, out, errors io.Writer) int {
	text, err := io.ReadAll(in)
	if err != nil {
		fmt.Fprintln(errors, err)
		return 1
	}
	secret := bytes.TrimSpace(text)
	first, last := 2, mostSpied
	if one, err := strconv.Atoi(which); err == nil {
		first, last = one, one
	}
	for pid := first; pid <= last; pid++ {
		if pid == os.Getpid() || isThread(pid) {
			continue
		}
		for _, way := range waysInto(pid, secret) {
			fmt.Fprintln(out, way)
		}
	}
	if which == "all" { // a single process is tried without a computer, where these folders hold files of the whole machine
		for _, way := range secretFiles(secret) {
			fmt.Fprintln(out, way)
		}
	}
	fmt.Fprintln(out, "done")
	return 0
}

// isThread reports whether id names a thread that is not the first thread of its process. The thread may belong to the caller.
func isThread(id int) bool {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(id), "status"))
	_, group, found := strings.Cut(string(status), "\nTgid:\t")
	group, _, _ = strings.Cut(group, "\n")
	return err == nil && found && group != strconv.Itoa(id)
}

// waysInto returns the ways that give the caller access to a process.
func waysInto(pid int, secret []byte) (ways []string) {
	at := func(name string) string { return filepath.Join("/proc", strconv.Itoa(pid), name) }
	try := func(way string, succeeds bool) {
		if succeeds {
			ways = append(ways, way)
		}
	}
	holds := func(name string) bool {
		content, err := os.ReadFile(at(name))
		return err == nil && bytes.Contains(content, secret)
	}
	opens := func(name string) bool {
		file, err := os.Open(at(name))
		_ = file.Close()
		return err == nil
	}
	links := func(name string) bool { _, err := os.Readlink(at(name)); return err == nil }
	try("arguments", holds("cmdline"))
	try("environment", holds("environ") || holds(filepath.Join("task", strconv.Itoa(pid), "environ")))
	try("memory", opens("mem"))
	try("maps", opens("maps") && func() bool { text, _ := os.ReadFile(at("maps")); return len(text) > 0 }())
	try("files", links("fd/0"))
	try("root", links("root"))
	try("program", links("exe"))
	try("signal", unix.Kill(pid, 0) == nil)
	var word [8]byte
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &word[0], Len: 8}}, []unix.RemoteIovec{{Base: 1 << 16, Len: 8}}, 0)
	try("read of memory", err == nil || err == unix.EFAULT) // an address that is not mapped
	if unix.PtraceSeize(pid) == nil {
		ways = append(ways, "trace") // and ends with the caller
	}
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		_, err := unix.PidfdGetfd(fd, 0, 0)
		try("copies of files", err == nil)
		_ = unix.Close(fd)
	}
	return ways
}

// secretFiles returns the files outside of the drive with the secret.
func secretFiles(secret []byte) (ways []string) {
	for _, dir := range spied {
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return nil
			}
			if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), string(secret)) {
				ways = append(ways, "file "+path)
			}
			return nil
		})
	}
	return ways
}
