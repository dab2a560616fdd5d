package drive_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/drive/quota"
)

// TestImagesAfterARestart restarts the process while the command of an input may still take effect, as it may on another member. Neither
// the sweep nor a refused input with the same image removes the image before the outcome is known.
func TestImagesAfterARestart(t *testing.T) {
	testOutcomes(t, testImagesAfterARestart)
}

func testImagesAfterARestart(t *testing.T, takesEffect bool) {
	dir, rows := t.TempDir(), newImageRows()
	images := imagesOf("late")
	leaveUnknown(t, rows, dir, images)
	drives := rows.open(t, dir, quota.Limit{})
	openDrive(t, drives)
	synctest.Wait() // for the sweep
	expectStored(t, dir, 1, 1)
	for range 2 {
		err := drives.KeepImages(t.Context(), workspace, "ses_1", images, func() error { return errRefused })
		if !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
	}
	expectStored(t, dir, 1, 1)
	time.Sleep(2 * time.Minute)
	rows.settle(t, dir, images, takesEffect)
}

// TestImagesOfARefusedInputAfterARestart is TestImagesAfterARestart without a sweep before the refused input.
func TestImagesOfARefusedInputAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, rows := t.TempDir(), newImageRows()
		images := imagesOf("late")
		leaveUnknown(t, rows, dir, images)
		drives := rows.open(t, dir, quota.Limit{})
		err := drives.KeepImages(t.Context(), workspace, "ses_1", images, func() error { return errRefused })
		if !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
		synctest.Wait()
		expectStored(t, dir, 1, 1)
		if err := rows.name("ses_1", images)(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		expectStored(t, dir, 1, 0)
		expectImage(t, drives, "ses_1", "late")
	})
}

// leaveUnknown keeps images of an input. The outcome of the input is unknown when the process ends.
func leaveUnknown(t *testing.T, rows *imageRows, dir string, images map[string][]byte) {
	t.Helper()
	drives := rows.open(t, dir, quota.Limit{})
	err := drives.KeepImages(t.Context(), workspace, "ses_1", images, func() error { return errUnknown })
	if closed := drives.Close(); !errors.Is(err, errUnknown) || closed != nil {
		t.Fatal(err, closed)
	}
}

// settle has the command of an input take effect, or not, and expects the images of the input to be kept only if it has.
func (r *imageRows) settle(t *testing.T, dir string, images map[string][]byte, takesEffect bool) {
	t.Helper()
	want := 0
	if takesEffect {
		want = 1
		if err := r.name("ses_1", images)(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	expectStored(t, dir, want, 0)
}
