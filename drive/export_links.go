package drive

import (
	"archive/tar"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinkMemory limits the memory for the names of hard-linked files during an export, in bytes. It has room for about half a million
// files.
const maxLinkMemory = 64 << 20

// fixedLinkMemory is the memory that a file needs in hardLinks beside its name, in bytes.
const fixedLinkMemory = 112

// A fileID identifies a file or symbolic link, also after its inode number has been given to a new file.
type fileID struct {
	major, minor uint32
	inode        uint64
	born         unix.StatxTimestamp
}

// identify returns the id and the number of names of an entry of a folder, or of the open file itself if the name is empty.
func identify(fd int, name string) (id fileID, names uint32, err error) {
	var st unix.Statx_t
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_EMPTY_PATH
	err = retryEINTR(func() error {
		return unix.Statx(fd, name, flags, unix.STATX_INO|unix.STATX_NLINK|unix.STATX_BTIME, &st)
	})
	if st.Mask&unix.STATX_BTIME == 0 {
		st.Btime = unix.StatxTimestamp{}
	}
	return fileID{st.Dev_major, st.Dev_minor, st.Ino, st.Btime}, st.Nlink, err
}

// hardLinks has the first names of the files of which other names were not exported yet.
type hardLinks struct {
	first map[fileID]*firstName
	// memory is the size of first in bytes, about.
	memory int
	// folder is the folder of the last name that was added.
	folder *namedFolder
}

// A namedFolder is the path of a folder, which the first names in the folder share.
type namedFolder struct {
	path  string
	names int
}

// A firstName is the path of a file in the archive.
type firstName struct {
	folder *namedFolder
	name   string
	// left is the number of names that may follow.
	left uint32
}

// add records that the file at a path, which has this number of names, is in the archive. It returns false if there is no memory
// for the name.
func (l *hardLinks) add(id fileID, names uint32, at string) bool {
	l.remove(id)
	in, name := path.Split(at)
	folder, memory := l.folder, fixedLinkMemory+len(name)
	if folder == nil || folder.path != in || folder.names == 0 {
		folder, memory = &namedFolder{path: strings.Clone(in)}, memory+len(in)
	}
	if l.memory+memory > maxLinkMemory {
		return false
	}
	if l.first == nil {
		l.first = map[fileID]*firstName{}
	}
	folder.names++
	l.folder, l.memory = folder, l.memory+memory
	l.first[id] = &firstName{folder: folder, name: strings.Clone(name), left: names - 1}
	return true
}

// next returns the path in the archive of a file of which another name was found, or "" if the archive does not have the file.
func (l *hardLinks) next(id fileID) string {
	first := l.first[id]
	if first == nil {
		return ""
	}
	if first.left--; first.left == 0 {
		l.remove(id)
	}
	return first.folder.path + first.name
}

// remove forgets the name of a file, and its folder with the last name in it.
func (l *hardLinks) remove(id fileID) {
	first := l.first[id]
	if first == nil {
		return
	}
	delete(l.first, id)
	l.memory -= fixedLinkMemory + len(first.name)
	if first.folder.names--; first.folder.names == 0 {
		l.memory -= len(first.folder.path)
	}
}

// writeHardLink writes the name of a file as a hard link, as GNU tar does, if the archive has the file by another name. It reports
// whether it has written an entry.
func (e *exporter) writeHardLink(parent handle, name, path string, st *unix.Stat_t) (isWritten bool, err error) {
	id, _, err := identify(parent.fd(), name)
	if err != nil {
		return false, err
	}
	first := e.links.next(id)
	if first == "" {
		return false, nil
	}
	header := newHeader(st, path)
	header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
	return true, e.writeHeader(header)
}

// addLink records a file with several names that is in the archive. Without memory for the file, its further names become files of
// their own, which the log and the result say, as if the file had changed.
func (e *exporter) addLink(id fileID, names uint32, path string) {
	if names < 2 || e.links.add(id, names, path) {
		return
	}
	if !e.hasTooManyLinks {
		e.hasTooManyLinks = true
		e.drive.drives.log.Warn("an archive has copies of files in place of hard links because there are too many hard-linked files",
			"workspace", e.drive.workspaceID, "path", path)
	}
	e.nameChanged(path)
}
