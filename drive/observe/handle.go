package observe

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxHandleBytes is the greatest length of a handle (MAX_HANDLE_SZ).
const maxHandleBytes = 128

// handleAt returns the handle of an entry below an open folder, and "" if there is no entry. It does not follow a link. flags
// may be AT_EMPTY_PATH.
//
// unix.NameToHandleAt needs two system calls and several allocations, which a flush of thousands of rows would notice.
func handleAt(dir int, path string, flags int) (handle, error) {
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		return "", err
	}
	var buffer [8 + maxHandleBytes]byte
	var mount int32
	binary.NativeEndian.PutUint32(buffer[:], maxHandleBytes)
	_, _, errno := unix.Syscall6(unix.SYS_NAME_TO_HANDLE_AT, uintptr(dir), uintptr(unsafe.Pointer(name)),
		uintptr(unsafe.Pointer(&buffer)), uintptr(unsafe.Pointer(&mount)), uintptr(flags), 0)
	switch errno {
	case 0:
		return handle(buffer[:8+min(binary.NativeEndian.Uint32(buffer[:]), maxHandleBytes)]), nil
	case unix.ENOENT, unix.ENOTDIR:
		return "", nil
	}
	return "", errno
}
