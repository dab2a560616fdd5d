package drive_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// imageRows is an activity with the rows of images. Each question for a row is announced in asked.
type imageRows struct {
	*drivetest.Activity
	asked chan string

	mu   sync.Mutex
	rows map[string]bool
	err  error
}

func newImageRows() *imageRows {
	return &imageRows{Activity: &drivetest.Activity{}, asked: make(chan string, 100), rows: map[string]bool{}}
}

// Ask implements entity.Asker.
func (r *imageRows) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	list, is := c.Message.(*wirev1.List)
	if !is {
		return r.Activity.Ask(ctx, c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked <- string(list.GetPrefix())
	page := &wirev1.Page{}
	if r.rows[string(list.GetPrefix())] {
		page.Rows = [][]byte{nil}
	}
	return page, r.err
}

// name makes an input of a session name images.
func (r *imageRows) name(sessionID string, images map[string][]byte) func() error {
	return func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for sum := range images {
			r.rows[session.ImageKey(sessionID, []byte(sum))] = true
		}
		return nil
	}
}

func (r *imageRows) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

func (r *imageRows) open(t *testing.T, dir string, limit quota.Limit) *drive.Drives {
	t.Helper()
	drives, err := drive.New(drive.Options{Dir: dir, Asker: r, Quota: limit, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { drives.Close() })
	if err := drives.Provision(t.Context(), workspace); err != nil {
		t.Fatal(err)
	}
	return drives
}

func imagesOf(contents ...string) map[string][]byte {
	images := map[string][]byte{}
	for _, c := range contents {
		images[sumOf(c)] = []byte(c)
	}
	return images
}

func sumOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return string(sum[:])
}

// stored returns the names of the files of images and markers of a workspace, with their sessions.
func stored(t *testing.T, dir string) (images, markers int) {
	t.Helper()
	for pattern, n := range map[string]*int{"images/*/*": &images, "tmp/*.image": &markers} {
		found, err := filepath.Glob(filepath.Join(dir, workspace, pattern))
		if err != nil {
			t.Fatal(err)
		}
		*n = len(found)
	}
	return images, markers
}

func expectStored(t *testing.T, dir string, images, markers int) {
	t.Helper()
	if i, m := stored(t, dir); i != images || m != markers {
		t.Errorf("%d images and %d markers are stored, want %d and %d", i, m, images, markers)
	}
}

func expectImage(t *testing.T, drives *drive.Drives, sessionID, content string) {
	t.Helper()
	if got, err := drives.ReadImage(t.Context(), workspace, sessionID, []byte(sumOf(content))); string(got) != content || err != nil {
		t.Errorf("the image of %s is %q, %v, want %q", sessionID, got, err, content)
	}
}

var errRefused, errUnknown = entity.Errorf(entity.Forbidden, "refused"), errors.New("no answer")

// TestImages keeps images of several inputs and sessions, some of them the same, and removes the images of one session.
func TestImages(t *testing.T) {
	dir, rows := t.TempDir(), newImageRows()
	drives := rows.open(t, dir, quota.Limit{})
	keep := func(sessionID string, contents ...string) {
		t.Helper()
		images := imagesOf(contents...)
		commit := rows.name(sessionID, images)
		if err := drives.KeepImages(t.Context(), workspace, sessionID, images, commit); err != nil {
			t.Fatal(err)
		}
	}
	keep("ses_1", "a", "b")
	keep("ses_1", "b", "c")
	keep("ses_2", "a")
	expectStored(t, dir, 4, 0)
	expectImage(t, drives, "ses_1", "b")
	if _, err := drives.ReadImage(t.Context(), workspace, "ses_2", []byte(sumOf("b"))); !isCode(err, entity.NotFound) {
		t.Errorf("the image of another session is read: %v", err)
	}
	// A refused input removes its image, unless another input names it.
	for _, content := range []string{"a", "d"} {
		err := drives.KeepImages(t.Context(), workspace, "ses_1", imagesOf(content), func() error { return errRefused })
		if !errors.Is(err, errRefused) {
			t.Errorf("%v", err)
		}
	}
	expectStored(t, dir, 4, 0)
	for range 2 {
		if err := drives.RemoveImages(t.Context(), workspace, "ses_1"); err != nil {
			t.Fatal(err)
		}
	}
	expectStored(t, dir, 1, 0)
	expectImage(t, drives, "ses_2", "a")
	at := filepath.Join(dir, workspace, "images/ses_2", hex.EncodeToString([]byte(sumOf("a"))))
	if err := os.WriteFile(at, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := drives.ReadImage(t.Context(), workspace, "ses_2", []byte(sumOf("a"))); !isCode(err, entity.NotFound) {
		t.Errorf("a damaged image is read: %v", err)
	}
	for _, id := range []string{"", "..", "a/b", "../ws_2/images/ses_1", "a.b"} {
		if err := drives.KeepImages(t.Context(), workspace, id, imagesOf("a"), func() error { return nil }); err == nil {
			t.Errorf("the id %q is a session's", id)
		}
	}
}

func isCode(err error, code entity.Code) bool {
	refused, is := errors.AsType[*entity.Error](err)
	return is && refused.Code == code
}

// TestImagesCountInTheQuota sends images until the quota is used up. A request that does not fit is refused whole, before anything is
// written, and the deletion of the session gives the space back.
func TestImagesCountInTheQuota(t *testing.T) {
	synctest.Test(t, testImagesCountInTheQuota) // in virtual time a drive may be measured at any time
}

func testImagesCountInTheQuota(t *testing.T) {
	dir, rows := t.TempDir(), newImageRows()
	drives := rows.open(t, dir, quota.Limit{Bytes: 1 << 20})
	big := func(letter string) string { return strings.Repeat(letter, 200<<10) }
	committed := 0
	send := func(contents ...string) error {
		return drives.KeepImages(t.Context(), workspace, "ses_1", imagesOf(contents...), func() error { committed++; return nil })
	}
	for _, letter := range []string{"a", "b", "c", "d"} {
		if err := send(big(letter)); err != nil {
			t.Fatal(err)
		}
	}
	if err := send("small", big("e"), big("f")); !isCode(err, drive.Full) || committed != 4 {
		t.Errorf("%v after %d inputs", err, committed)
	}
	expectStored(t, dir, 4, 0)
	if err := send(big("a"), big("b")); err != nil || committed != 5 {
		t.Errorf("images that the session has already are refused: %v", err)
	}
	d := openDrive(t, drives)
	if _, _, err := d.Put(t.Context(), "file", drive.Upload{Body: strings.NewReader(big("x") + big("y")), Size: -1}, change); !isCode(err, drive.Full) {
		t.Errorf("images do not count beside files: %v", err)
	}
	if err := drives.RemoveImages(t.Context(), workspace, "ses_1"); err != nil {
		t.Fatal(err)
	}
	for _, letter := range []string{"e", "f", "g", "h"} {
		if err := send(big(letter)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestImagesAfterACrash leaves images behind in every step, and starts again. The command with the images may have taken effect or not.
func TestImagesAfterACrash(t *testing.T) {
	synctest.Test(t, testImagesAfterACrash)
}

func testImagesAfterACrash(t *testing.T) {
	dir, rows := t.TempDir(), newImageRows()
	drives := rows.open(t, dir, quota.Limit{})
	named := imagesOf("named")
	for i, images := range []map[string][]byte{imagesOf("lost"), named} {
		err := drives.KeepImages(t.Context(), workspace, "ses_1", images, func() error {
			expectStored(t, dir, i+1, i+1)
			return errUnknown
		})
		if !errors.Is(err, errUnknown) {
			t.Fatal(err)
		}
	}
	if err := rows.name("ses_1", named)(); err != nil {
		t.Fatal(err)
	}
	// A sweep of the process that knows of the requests leaves them.
	openDrive(t, drives)
	if err := drives.Close(); err != nil {
		t.Fatal(err)
	}
	expectStored(t, dir, 2, 2)
	// A crash during step 2 leaves a part of an image.
	part := filepath.Join(dir, workspace, "tmp", "ses_2."+hex.EncodeToString([]byte(sumOf("part")))+".image")
	if err := os.WriteFile(part, []byte("pa"), 0o600); err != nil {
		t.Fatal(err)
	}
	rows.fail(errUnknown)
	sweep(t, rows, dir)
	expectStored(t, dir, 2, 3)
	rows.fail(nil)
	sweep(t, rows, dir)
	expectStored(t, dir, 1, 0)
	drives = rows.open(t, dir, quota.Limit{})
	expectImage(t, drives, "ses_1", "named")
}

// sweep opens the drive, and closes it when its sweep has settled all that it can.
func sweep(t *testing.T, rows *imageRows, dir string) {
	t.Helper()
	drives := rows.open(t, dir, quota.Limit{})
	openDrive(t, drives)
	time.Sleep(10 * time.Minute)
	synctest.Wait()
	if err := drives.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestImagesAreSettledLater has the process itself find out the unknown outcome of a request.
func TestImagesAreSettledLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, rows := t.TempDir(), newImageRows()
		drives := rows.open(t, dir, quota.Limit{})
		if err := drives.KeepImages(t.Context(), workspace, "ses_1", imagesOf("lost"), func() error { return errUnknown }); !errors.Is(err, errUnknown) {
			t.Fatal(err)
		}
		expectStored(t, dir, 1, 1)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		expectStored(t, dir, 0, 0)
	})
}

// TestImagesOfConcurrentInputs sweeps the drive while an input is being accepted, and refuses another input with the same image
// meanwhile. The image stays.
func TestImagesOfConcurrentInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, rows := t.TempDir(), newImageRows()
		drives := rows.open(t, dir, quota.Limit{})
		images := imagesOf("same")
		refused := make(chan error)
		err := drives.KeepImages(t.Context(), workspace, "ses_1", images, func() error {
			go func() {
				refused <- drives.KeepImages(context.Background(), workspace, "ses_1", images, func() error { return errRefused })
			}()
			d, release, err := drives.Open(t.Context(), workspace)
			if err != nil {
				return err
			}
			defer release()
			if err := errors.Join(d.MakeFolder(t.Context(), "a", change), d.Remove(t.Context(), "a", change)); err != nil {
				return err
			}
			synctest.Wait() // for the sweep, and until the other input waits
			expectStored(t, dir, 1, 1)
			return rows.name("ses_1", images)()
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-refused; !errors.Is(err, errRefused) {
			t.Errorf("the other input: %v", err)
		}
		synctest.Wait()
		expectStored(t, dir, 1, 0)
	})
}

// TestImagesOfSeveralUnknownInputs has two inputs of unknown outcome with the same image, and a refused input. The image stays until
// the last input has been settled.
func TestImagesOfSeveralUnknownInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, rows := t.TempDir(), newImageRows()
		drives := rows.open(t, dir, quota.Limit{})
		images := imagesOf("same")
		for _, outcome := range []error{errUnknown, errUnknown, errRefused} {
			if err := drives.KeepImages(t.Context(), workspace, "ses_1", images, func() error { return outcome }); !errors.Is(err, outcome) {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
		}
		synctest.Wait() // for the end of the first input
		expectStored(t, dir, 1, 1)
		if err := rows.name("ses_1", images)(); err != nil { // the second input takes effect
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		expectStored(t, dir, 1, 0)
		expectImage(t, drives, "ses_1", "same")
	})
}

// testOutcomes runs a test for both outcomes that a command of unknown outcome may have.
func testOutcomes(t *testing.T, test func(t *testing.T, takesEffect bool)) {
	for name, takesEffect := range map[string]bool{"effect": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, takesEffect) })
		})
	}
}

// TestImagesOfARetriedInput sends an image that a crash has left with its marker, sweeps the drive meanwhile, and has the outcome be
// unknown. The image stays until the retried input has been settled.
func TestImagesOfARetriedInput(t *testing.T) {
	testOutcomes(t, testImagesOfARetriedInput)
}

func testImagesOfARetriedInput(t *testing.T, takesEffect bool) {
	dir, rows := t.TempDir(), newImageRows()
	images := imagesOf("left")
	leaveUnknown(t, rows, dir, images)
	rows.fail(errUnknown)
	drives := rows.open(t, dir, quota.Limit{})
	openDrive(t, drives)
	synctest.Wait() // for the first sweep, which fails
	rows.fail(nil)
	err := drives.KeepImages(t.Context(), workspace, "ses_1", images, func() error {
		d, release, err := drives.Open(t.Context(), workspace)
		if err != nil {
			return err
		}
		defer release()
		if err := errors.Join(d.MakeFolder(t.Context(), "a", change), d.Remove(t.Context(), "a", change)); err != nil {
			return err
		}
		synctest.Wait() // for the sweep
		return errUnknown
	})
	if !errors.Is(err, errUnknown) {
		t.Fatal(err)
	}
	time.Sleep(4 * time.Minute)
	expectStored(t, dir, 1, 1)
	rows.settle(t, dir, images, takesEffect)
}
