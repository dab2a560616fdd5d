package observe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// mask has the events that a group reports. FAN_RENAME reports both names of a moved entry in one event.
const mask = unix.FAN_CREATE | unix.FAN_DELETE | unix.FAN_RENAME | unix.FAN_MODIFY | unix.FAN_CLOSE_WRITE | unix.FAN_ONDIR

const (
	// readBytes is the size of the buffer for events.
	readBytes = 128 << 10
	// maxEventBytes is more than an event has: three handles and two names.
	maxEventBytes = 2 << 10
)

// A group is a fanotify group with a mark on one file system.
type group struct {
	fd int
	// mount is an open folder of the file system, through which handles are opened.
	mount  int
	buffer []byte
}

// openGroup creates a group that reports the changes of the file system that holds a folder. Without isLimited the kernel
// queues any number of events; see Observer.boundQueue. It returns an error that says which step failed if the kernel or the
// file system does not support it, or the process lacks the right.
func openGroup(dir string, isLimited bool) (*group, error) {
	flags := uint(unix.FAN_CLASS_NOTIF | unix.FAN_CLOEXEC | unix.FAN_NONBLOCK | unix.FAN_REPORT_DFID_NAME_TARGET)
	if !isLimited {
		flags |= unix.FAN_UNLIMITED_QUEUE
	}
	fd, err := unix.FanotifyInit(flags, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_LARGEFILE)
	if err != nil {
		return nil, fmt.Errorf("create a fanotify group: %w", err)
	}
	mount, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(fd) // nothing was written
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	g := &group{fd: fd, mount: mount, buffer: make([]byte, readBytes)}
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, mask, mount, "."); err != nil {
		g.close()
		return nil, fmt.Errorf("mark the file system of %s for fanotify: %w", dir, err)
	}
	return g, nil
}

// close removes the mark. Events that were not read are lost.
func (g *group) close() {
	_ = unix.Close(g.fd) // both descriptors are only read from
	_ = unix.Close(g.mount)
}

// A record is one event of the kernel. Its slices are valid until the next read.
type record struct {
	mask uint64
	pid  int32
	// dir and name are the changed entry; of a rename they are the old place, and newDir and newName the new one.
	dir     []byte
	name    []byte
	newDir  []byte
	newName []byte
	// target is the handle of the entry itself.
	target []byte
}

// read calls visit for each queued event that fits into the buffer. It reports whether more may be queued: if not, all events
// were read that were queued before the call.
func (g *group) read(visit func(*record)) (more bool, err error) {
	n, err := unix.Read(g.fd, g.buffer)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return errors.Is(err, unix.EINTR), nil
	case err != nil:
		return false, fmt.Errorf("read events: %w", err)
	}
	for data := g.buffer[:n]; len(data) >= unix.FAN_EVENT_METADATA_LEN; {
		length := int(binary.NativeEndian.Uint32(data))
		if length < unix.FAN_EVENT_METADATA_LEN || length > len(data) {
			return true, fmt.Errorf("read events: an event has %d bytes, %d are left", length, len(data))
		}
		var r record
		if err := r.parse(data[:length]); err != nil {
			return true, err
		}
		visit(&r)
		data = data[length:]
	}
	return n > readBytes-maxEventBytes, nil
}

// parse reads an event and the information records behind it.
func (r *record) parse(data []byte) error {
	if data[4] != unix.FANOTIFY_METADATA_VERSION {
		return fmt.Errorf("read events: version %d is not supported", data[4])
	}
	r.mask = binary.NativeEndian.Uint64(data[8:])
	r.pid = int32(binary.NativeEndian.Uint32(data[20:]))
	for data = data[binary.NativeEndian.Uint16(data[6:]):]; len(data) >= 4; {
		kind, length := data[0], int(binary.NativeEndian.Uint16(data[2:]))
		if length < 4 || length > len(data) {
			return fmt.Errorf("read events: a record has %d bytes, %d are left", length, len(data))
		}
		if err := r.parseInfo(kind, data[4:length]); err != nil {
			return err
		}
		data = data[length:]
	}
	return nil
}

// parseInfo reads an information record: 8 bytes of the file system's id, a handle and, for some kinds, a name.
func (r *record) parseInfo(kind byte, data []byte) error {
	switch kind {
	case unix.FAN_EVENT_INFO_TYPE_FID, unix.FAN_EVENT_INFO_TYPE_DFID, unix.FAN_EVENT_INFO_TYPE_DFID_NAME,
		unix.FAN_EVENT_INFO_TYPE_OLD_DFID_NAME, unix.FAN_EVENT_INFO_TYPE_NEW_DFID_NAME:
	default:
		return nil
	}
	if len(data) < 16 {
		return errors.New("read events: a handle is cut off")
	}
	end := 16 + int(binary.NativeEndian.Uint32(data[8:]))
	if end > len(data) {
		return errors.New("read events: a handle is cut off")
	}
	handle, name := data[8:end], data[end:]
	if zero := bytes.IndexByte(name, 0); zero >= 0 {
		name = name[:zero]
	}
	switch kind {
	case unix.FAN_EVENT_INFO_TYPE_FID:
		r.target = handle
	case unix.FAN_EVENT_INFO_TYPE_NEW_DFID_NAME:
		r.newDir, r.newName = handle, name
	default:
		r.dir, r.name = handle, name
	}
	return nil
}

// A handle identifies an inode of the file system, also after it was removed: the encoding of a file_handle of the kernel.
type handle string

// open opens the inode of a handle. It returns ESTALE if the inode was removed.
func (h handle) open(mount, flags int) (int, error) {
	if len(h) < 8 {
		return 0, unix.ESTALE
	}
	kind := int32(binary.NativeEndian.Uint32([]byte(h[4:8])))
	return unix.OpenByHandleAt(mount, unix.NewFileHandle(kind, []byte(h[8:])), flags|unix.O_CLOEXEC)
}

// queuedBytes returns the size of the queued events.
func (g *group) queuedBytes() int {
	n, err := unix.IoctlGetInt(g.fd, unix.TIOCINQ)
	if err != nil {
		return 0
	}
	return n
}
