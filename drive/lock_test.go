package drive_test

import (
	"testing"
	"time"

	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/drive/locks"
)

// TestLockIsConfirmedBesideOperations changes an entry under the wanted lock while the access of the caller of LOCK is verified: the answer
// may take long, and a lock on the root of the drive concerns all operations.
func TestLockIsConfirmedBesideOperations(t *testing.T) {
	d := openDrive(t, open(t, t.TempDir(), &drivetest.Activity{}))
	lock := locks.Lock{Token: "urn:uuid:1", Deep: true}
	changing := change
	changing.Submits = func(string) bool { return true }
	asked, wanting := false, change
	wanting.Authorize = func() error {
		asked = true
		return d.MakeFolder(t.Context(), "a", changing)
	}
	if _, err := d.Lock(t.Context(), lock, time.Minute, wanting); err != nil || !asked {
		t.Fatal(err, asked)
	}
}
