package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

func mountTmpfs(path, options string, flags uintptr) error {
	if err := unix.Mount("tmpfs", path, "tmpfs", flags, options); err != nil {
		return &os.PathError{Op: "mount a temporary file system at", Path: path, Err: err}
	}
	return nil
}

// setAttributes restricts the mount at a path.
func setAttributes(path string, attributes uint64) error {
	if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{Attr_set: attributes}); err != nil {
		return &os.PathError{Op: "restrict the mount at", Path: path, Err: err}
	}
	return nil
}

// bind attaches a copy of the mount at source to target.
func bind(source, target string, attributes uint64) error {
	fd, err := openTree(source, attributes)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// mountScratch mounts the folders that are lost when the computer stops. They are one file system, which has one limit.
func mountScratch(c *Config) error {
	const scratch = stage + "/sys" // an empty folder
	options := fmt.Sprintf("mode=755,size=%d,nr_inodes=%d", c.ScratchBytes, c.ScratchFiles)
	if err := mountTmpfs(scratch, options, unix.MS_NOSUID|unix.MS_NODEV); err != nil {
		return err
	}
	for _, one := range []struct {
		name, target string
		mode         uint32
	}{
		{"tmp", "/tmp", 0o1777}, {"var-tmp", "/var/tmp", 0o1777}, {"run", "/run", 0o755}, {"home", Home, 0o700},
	} {
		source := filepath.Join(scratch, one.name)
		if err := os.Mkdir(source, 0o700); err != nil {
			return err
		}
		if err := os.Chown(source, c.UID, c.UID); err != nil {
			return err
		}
		if err := unix.Chmod(source, one.mode); err != nil {
			return err
		}
		if err := bind(source, stage+one.target, 0); err != nil {
			return err
		}
	}
	return unix.Unmount(scratch, unix.MNT_DETACH)
}

// mountDev builds /dev: the devices without state, terminals of the computer's own, and shared memory.
func mountDev(c *Config) error {
	dev := stage + "/dev"
	if err := mountTmpfs(dev, "mode=755,size=64k,nr_inodes=64", unix.MS_NOSUID|unix.MS_NOEXEC); err != nil {
		return err
	}
	for _, name := range devices {
		target := filepath.Join(dev, name)
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			return err
		}
		if err := bind("/dev/"+name, target, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC); err != nil {
			return err
		}
	}
	for _, name := range []string{"pts", "shm"} {
		if err := os.Mkdir(filepath.Join(dev, name), 0o755); err != nil {
			return err
		}
	}
	options := "newinstance,ptmxmode=0666,mode=0620,max=256,gid=" + strconv.Itoa(c.UID)
	if err := unix.Mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return err
	}
	shared := fmt.Sprintf("mode=1777,size=%d,nr_inodes=%d", c.ScratchBytes/4, c.ScratchFiles)
	if err := mountTmpfs(dev+"/shm", shared, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return setAttributes(dev, unix.MOUNT_ATTR_RDONLY)
}

// mountProc mounts a /proc of the calling process's process namespace, without the parts that describe the machine or change it.
func mountProc(path string) error {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("proc", path, "proc", flags, ""); err != nil {
		return err
	}
	for _, name := range fixedProc {
		target := filepath.Join(path, name)
		if err := bind(target, target, unix.MOUNT_ATTR_RDONLY); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range hiddenProc {
		target := filepath.Join(path, name)
		at, err := os.Stat(target)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case at.IsDir():
			err = mountTmpfs(target, "mode=555,size=4k,nr_inodes=2", flags|unix.MS_RDONLY)
		default:
			err = bind(filepath.Join(filepath.Dir(path), "dev/null"), target, unix.MOUNT_ATTR_RDONLY)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
