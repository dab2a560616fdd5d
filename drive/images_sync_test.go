package drive_test

import (
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive/quota"
)

// TestRemovedImageIsSyncedBeforeItsMarker refuses an input of a session that has another image. The folder of the images is opened for its
// sync after the image has left the folder, and before the marker is removed: after a crash either the image has gone or its marker is there.
func TestRemovedImageIsSyncedBeforeItsMarker(t *testing.T) {
	dir, rows := t.TempDir(), newImageRows()
	drives := rows.open(t, dir, quota.Limit{})
	kept := imagesOf("kept")
	if err := drives.KeepImages(t.Context(), workspace, "ses_1", kept, rows.name("ses_1", kept)); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	watched := map[int]string{}
	err = drives.KeepImages(t.Context(), workspace, "ses_1", imagesOf("refused"), func() error {
		for _, folder := range []string{"images/ses_1", "tmp"} {
			id, err := unix.InotifyAddWatch(fd, filepath.Join(dir, workspace, folder), unix.IN_OPEN|unix.IN_DELETE)
			if err != nil {
				return err
			}
			watched[id] = folder
		}
		return errRefused
	})
	if !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	buffer := make([]byte, 64<<10)
	n, err := unix.Read(fd, buffer)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for data := buffer[:n]; len(data) >= unix.SizeofInotifyEvent; {
		id, mask := int(binary.NativeEndian.Uint32(data)), binary.NativeEndian.Uint32(data[4:])
		event := "open "
		if mask&unix.IN_DELETE != 0 {
			event = "delete in "
		}
		events = append(events, event+watched[id])
		data = data[unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(data[12:])):]
	}
	image, marker := slices.Index(events, "delete in images/ses_1"), slices.Index(events, "delete in tmp")
	if image < 0 || marker < image || !slices.Contains(events[image:marker], "open images/ses_1") {
		t.Errorf("the folder was not synced between the image and its marker: %q", events)
	}
}
