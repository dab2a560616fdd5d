package drivetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Entries describes each entry of a folder by its path: type and mode, owner, size, modification time, number of names and the first of
// them, extended attributes, and the hash of its content or the target of a link. platform are the attributes that are left out.
func Entries(dir string, platform ...string) (map[string]string, error) {
	all, first := map[string]string{}, map[uint64]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		attributes, err := attributesOf(path, platform)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%o %d:%d modified %d.%09d %s", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec, attributes)
		if e.IsDir() {
			all[name] = text
			return nil
		}
		if first[st.Ino] == "" {
			first[st.Ino] = name
		}
		content, err := contentOf(path, e)
		all[name] = fmt.Sprintf("%s, %d bytes, %d names, the first is %q: %s", text, st.Size, st.Nlink, first[st.Ino], content)
		return err
	})
	return all, err
}

func contentOf(path string, e fs.DirEntry) (string, error) {
	if e.Type() == fs.ModeSymlink {
		return os.Readlink(path)
	}
	if !e.Type().IsRegular() {
		return e.Type().String(), nil
	}
	content, err := os.ReadFile(path)
	return fmt.Sprintf("%x", sha256.Sum256(content)), err
}

// attributesOf returns the extended attributes of an entry as text, in the order of their names.
func attributesOf(path string, platform []string) (string, error) {
	list := make([]byte, 64<<10)
	n, err := unix.Llistxattr(path, list)
	if err != nil {
		return "", err
	}
	var all []string
	for name := range bytes.SplitSeq(bytes.TrimSuffix(list[:n], []byte{0}), []byte{0}) {
		if len(name) == 0 || slices.Contains(platform, string(name)) {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(path, string(name), value)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, fmt.Sprintf("%q=%q", name, value[:n]))
	}
	slices.Sort(all)
	return fmt.Sprint(all), nil
}
