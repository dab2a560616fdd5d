package observe

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxHints bounds the folders that are watched with inotify, of all drives together.
const maxHints = 1 << 16

// hintMask has the events after which a drive is scanned.
const hintMask = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVE | unix.IN_MODIFY | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE |
	unix.IN_DONT_FOLLOW | unix.IN_ONLYDIR | unix.IN_EXCL_UNLINK

// hints tells which drives have changed, with inotify. It misses changes in folders that are too new to be watched, which is why
// each hint only leads to a scan, and each scan watches the folders that it finds.
type hints struct {
	fd     int
	buffer []byte

	mu sync.Mutex
	// drives has the drive of each watched folder.
	drives map[int32]string
	// full has the drives with folders that the last scan could not watch. They are scanned from time to time.
	full map[string]bool
}

func openHints() (*hints, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	return &hints{fd: fd, buffer: make([]byte, 64<<10), drives: map[int32]string{}, full: map[string]bool{}}, nil
}

func (h *hints) close() { _ = unix.Close(h.fd) } // only read from

// add watches a folder of a drive. It does nothing if the folder is watched or has gone.
func (h *hints) add(o *Observer, workspaceID, folder string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.drives) >= maxHints {
		h.full[workspaceID] = true
		return
	}
	id, err := unix.InotifyAddWatch(h.fd, filepath.Join(o.filesDir(workspaceID), folder), hintMask)
	switch {
	case err == nil:
		h.drives[int32(id)] = workspaceID
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.ENOMEM):
		h.full[workspaceID] = true
	}
}

// beginScan is called before the scan of a drive, which adds each of its folders.
func (h *hints) beginScan(workspaceID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.full, workspaceID)
}

// forget ends the watches of a drive.
func (h *hints) forget(workspaceID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.full, workspaceID)
	for id, drive := range h.drives {
		if drive == workspaceID {
			_, _ = unix.InotifyRmWatch(h.fd, uint32(id)) // it fails if the folder has gone
			delete(h.drives, id)
		}
	}
}

// read calls changed with the drive of each event, and with "" if events were missed.
func (h *hints) read(changed func(workspaceID string)) error {
	for {
		n, err := unix.Read(h.fd, h.buffer)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		}
		h.mu.Lock()
		var drives []string
		for data := h.buffer[:n]; len(data) >= unix.SizeofInotifyEvent; {
			id, mask := int32(binary.NativeEndian.Uint32(data)), binary.NativeEndian.Uint32(data[4:])
			data = data[min(len(data), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(data[12:]))):]
			switch {
			case mask&unix.IN_Q_OVERFLOW != 0:
				drives = append(drives, "")
			case mask&unix.IN_IGNORED != 0:
				delete(h.drives, id)
			case h.drives[id] != "":
				drives = append(drives, h.drives[id])
			}
		}
		h.mu.Unlock()
		for _, drive := range drives {
			changed(drive)
		}
	}
}

// pollInterval is the time between two scans of a drive that is too large for hints.
const pollInterval = 10 * time.Second

// drainHints requests scans of the drives that have changed.
func (r *reader) drainHints() error {
	now := time.Now()
	err := r.hints.read(func(workspaceID string) {
		for id, d := range r.drives {
			if workspaceID == "" || id == workspaceID {
				d.requestScan(d.lastScan)
			}
		}
	})
	r.hints.mu.Lock()
	defer r.hints.mu.Unlock()
	for id := range r.hints.full {
		if d := r.drives[id]; d != nil && d.scanSince.IsZero() && !d.isBusy {
			d.requestScan(d.lastScan)
			d.scanAt = now.Add(pollInterval)
		}
	}
	return err
}
