package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The folders of a computer.
const (
	driveDir = "/drive"
	// Home is the home folder of processes.
	Home     = "/home/atelier"
	userName = "atelier"
)

// stage is the folder at which the file system of a computer is built. It is in a mount namespace of its own.
const stage = "/tmp"

// system are the folders with programs, and the files of /etc that programs need, which computers see read-only.
var (
	systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"}
	systemFiles   = []string{
		"/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs",
		"/etc/pki/ca-trust/extracted", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
		"/etc/mime.types", "/etc/services", "/etc/protocols", "/etc/terminfo", "/etc/fonts", "/etc/java-17-openjdk",
		"/etc/java-21-openjdk", "/etc/python3", "/etc/perl", "/etc/debian_version", "/etc/os-release", "/etc/inputrc",
	}
	devices = []string{"null", "zero", "full", "random", "urandom", "tty"}
)

// hidden are parts of /proc that say more about the machine than a computer needs; fixed are parts that must not change.
var (
	hiddenProc = []string{
		"acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list", "timer_stats",
		"kallsyms", "kpagecount", "kpageflags", "kpagecgroup", "key-users", "config.gz", "cmdline", "modules", "vmallocinfo",
		"slabinfo",
	}
	fixedProc = []string{"bus", "fs", "irq", "sys", "sysrq-trigger", "driver", "mtrr", "tty"}
)

// buildComputer makes the namespaces of the calling process into the namespaces of a computer. files has the user namespace that
// maps the owner of the drive to the user of the processes, if there is one.
func buildComputer(c *Config, files []*os.File) error {
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cannot make a control group namespace: %w", err)
	}
	if err := unix.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("cannot set the name of the computer: %w", err)
	}
	return buildRoot(c, files)
}

// buildRoot builds the file system of a computer and makes it the root.
func buildRoot(c *Config, files []*os.File) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("cannot separate the mounts: %w", err)
	}
	// The sources are opened first, because stage hides the entries below it.
	drive, err := openDrive(c, files)
	if err != nil {
		return fmt.Errorf("cannot mount the drive: %w", err)
	}
	trees := []tree{{driveDir, drive, false}}
	defer func() {
		for _, one := range trees {
			_ = unix.Close(one.fd)
		}
	}()
	system, links, err := openSystem()
	trees = append(trees, system...)
	if err != nil {
		return err
	}
	program, err := openProgram(c)
	trees = append(trees, program...)
	if err != nil {
		return err
	}
	if err := mountTmpfs(stage, "mode=755,size=1m,nr_inodes=1k", unix.MS_NOSUID|unix.MS_NODEV); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/dev", "/etc", "/sys", "/home", Home, "/var", "/var/tmp", "/tmp", "/run", "/root", PrivateDir} {
		if err := os.MkdirAll(stage+dir, 0o755); err != nil {
			return err
		}
	}
	if err := writeEtc(c); err != nil {
		return err
	}
	for _, one := range trees {
		if err := one.attach(); err != nil {
			return fmt.Errorf("cannot mount %s: %w", one.path, err)
		}
	}
	for path, target := range links {
		if err := os.Symlink(target, stage+path); err != nil {
			return err
		}
	}
	if err := mountScratch(c); err != nil {
		return fmt.Errorf("cannot mount temporary folders: %w", err)
	}
	if err := mountDev(c); err != nil {
		return fmt.Errorf("cannot mount /dev: %w", err)
	}
	if err := mountProc(stage + "/proc"); err != nil {
		return fmt.Errorf("cannot mount /proc: %w", err)
	}
	return enterRoot()
}

// enterRoot makes stage the root and gives up the machine's mounts.
func enterRoot() error {
	if err := os.Chdir(stage); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("cannot change the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("cannot give up the machine's files: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return setAttributes("/", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV)
}

// A tree is a copy of a mount that is not yet attached.
type tree struct {
	path   string
	fd     int
	isFile bool
}

// openTree copies the mount of a folder or file and restricts the copy.
func openTree(path string, attributes uint64) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attributes}); err != nil {
		_ = unix.Close(fd)
		return -1, &os.PathError{Op: "mount_setattr", Path: path, Err: err}
	}
	return fd, nil
}

// attach attaches the tree below stage.
func (t tree) attach() error {
	target := stage + t.path
	if t.isFile {
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			return err
		}
	} else if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return unix.MoveMount(t.fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// openDrive copies the mount of the drive's files. With a user namespace, files of the server's user belong to the processes' user
// in the copy, and files that processes create belong to the server's user on the disk.
func openDrive(c *Config, files []*os.File) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, c.Files, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if errors.Is(err, unix.EINVAL) && len(files) == 0 {
		// A user namespace may copy a folder with mounts below it only with them.
		fd, err = unix.OpenTree(unix.AT_FDCWD, c.Files, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open_tree", Path: c.Files, Err: err}
	}
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if len(files) == 1 {
		attributes.Attr_set |= unix.MOUNT_ATTR_IDMAP
		attributes.Userns_fd = uint64(files[0].Fd())
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("its file system cannot map users (mount_setattr): %w", err)
	}
	return fd, nil
}

// systemAttributes are the attributes of the mounts of the machine's programs.
const systemAttributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV

// openProgram copies the mount of the server's program, read-only. The program may have been removed from the machine since the
// server was started, or be in a folder that only another user may enter.
func openProgram(c *Config) ([]tree, error) {
	if c.Program == "" {
		return nil, nil
	}
	fd, err := openTree(c.Program, systemAttributes)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []tree{{c.ProgramPath, fd, true}}, nil
}

// openSystem copies the mounts of the machine's programs, read-only. links has the folders that are symbolic links.
func openSystem() (trees []tree, links map[string]string, err error) {
	links = map[string]string{}
	for _, path := range append(systemFolders[:len(systemFolders):len(systemFolders)], systemFiles...) {
		at, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return trees, links, err
		}
		if at.Mode()&fs.ModeSymlink != 0 && !strings.HasPrefix(path, "/etc/") {
			if links[path], err = os.Readlink(path); err != nil {
				return trees, links, err
			}
			continue
		}
		if at, err = os.Stat(path); err != nil {
			continue // a broken link of /etc
		}
		fd, err := openTree(path, systemAttributes)
		if err != nil {
			return trees, links, err
		}
		trees = append(trees, tree{path, fd, !at.IsDir()})
	}
	return trees, links, nil
}

// writeEtc writes the files of /etc that describe the computer and not the machine.
func writeEtc(c *Config) error {
	id := strconv.Itoa(c.UID)
	for name, content := range map[string]string{
		"passwd": "root:x:0:0:root:/:/usr/sbin/nologin\n" + userName + ":x:" + id + ":" + id + "::" + Home + ":/bin/sh\n" +
			"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		"group":         "root:x:0:\n" + userName + ":x:" + id + ":\nnogroup:x:65534:\n",
		"hosts":         "127.0.0.1 localhost " + c.Hostname + "\n::1 localhost ip6-localhost\n",
		"hostname":      c.Hostname + "\n",
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
		"resolv.conf":   c.Resolver,
		"shells":        "/bin/sh\n/bin/bash\n",
	} {
		if err := os.WriteFile(stage+"/etc/"+name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return os.Symlink("/proc/self/mounts", stage+"/etc/mtab")
}
