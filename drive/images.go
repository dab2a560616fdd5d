package drive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/drive/quota"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/retry"
)

// Images of the inputs of sessions are files beside the drive, named by their SHA-256, so that they count in the quota of the workspace
// and no process of its computer sees them:
//
//	<dir>/<workspace>/images/<session>/<SHA-256>     an image
//	<dir>/<workspace>/tmp/<session>.<SHA-256>.image  its marker, while it is unknown whether an input names the image
//
// An image becomes part of an input in these steps (KeepImages):
//
//  1. The images of the session are locked, and the quota and the disk grant the space of all new images, or nothing is written.
//  2. Each new image is written to its marker and synced. Then the folder of the markers is synced.
//  3. Each marker is linked to the name of the image, and that folder is synced. The image is durable, and so is the marker.
//  4. commit makes the input durable, with a row in session.ImageList for each of its images.
//  5. The markers are removed. If commit was refused, images without a row are removed, too.
//
// A marker is left behind by a crash, or if the outcome of commit is unknown. After settleAfter, KeepImages asks for the row: without one the
// image belongs to no input and is removed (settleImage). A marker of an ended process is adopted by the sweep of the drive, or by the
// request that finds it, and is settled after the same time: the command of the ended process may still take effect on another member. So
// the cost of a crash grows with the requests in flight, and not with the images of the workspace. If several requests of unknown outcome
// have the same image, the last request settles the image.
//
// RemoveImages removes the images of a deleted session. Each session has its own copy of an image, even if another session has the same
// image.

const (
	// ImagesName is the name of the folder of the images, beside the files of a workspace's drive.
	ImagesName   = "images"
	markerSuffix = ".image"
	// settleAfter is the time until the command of a request with an unknown outcome has either taken effect or never will. It
	// is several times the time that a request takes.
	settleAfter = 5 * time.Minute
)

// An imageName names an image of a session.
type imageName struct {
	workspaceID, sessionID string
	// digits is the SHA-256 of the image in lower case hexadecimal digits.
	digits string
}

// folder, path and marker are relative to the folder of all drives.
func (n imageName) folder() string { return n.workspaceID + "/" + ImagesName + "/" + n.sessionID }
func (n imageName) path() string   { return n.folder() + "/" + n.digits }
func (n imageName) marker() string {
	return n.workspaceID + "/tmp/" + n.sessionID + "." + n.digits + markerSuffix
}

// isMarker reports whether an entry of tmp is a marker, and returns the image of the marker.
func (d *Drive) isMarker(entry string) (imageName, bool) {
	name, isMarker := strings.CutSuffix(entry, markerSuffix)
	sessionID, digits, hasDigits := strings.Cut(name, ".")
	sum, err := hex.DecodeString(digits)
	return imageName{d.workspaceID, sessionID, digits}, isMarker && hasDigits && err == nil && len(sum) == sha256.Size
}

// validateSessionID refuses an id that is not one path segment without points.
func validateSessionID(sessionID string) error {
	if err := entity.CheckPath(sessionID); err != nil || strings.ContainsAny(sessionID, "/.") {
		return errors.Join(err, entity.Errorf(entity.InvalidRequest, "the id of the session is invalid"))
	}
	return nil
}

// KeepImages makes images of a session durable and then calls commit, which makes the input durable that names them. The keys of images
// are their SHA-256. KeepImages returns Full, with nothing written and without a call of commit, if the images exceed the quota of the
// workspace or the disk has too little space; Unavailable; errors of the disk; or the error of commit. After a refusal of commit, images
// that no other input names are removed.
func (d *Drives) KeepImages(ctx context.Context, workspaceID, sessionID string, images map[string][]byte, commit func() error) error {
	if err := errors.Join(validateWorkspaceID(workspaceID), validateSessionID(sessionID)); err != nil {
		return err
	}
	drive, release, err := d.Open(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer release()
	unlock, err := d.imageLocks.acquire(ctx, workspaceID+"/"+sessionID)
	if err != nil {
		return err
	}
	defer unlock()
	added, left, err := d.findUnsettled(workspaceID, sessionID, images)
	if err != nil {
		d.metrics.countOperation("image", err)
		return fromOS(err)
	}
	d.adoptMarkers(left)
	names := slices.Concat(added, left)
	d.rememberMarkers(names)
	if len(names) > 0 {
		err = drive.addImages(ctx, sessionID, images, added)
	}
	d.metrics.countOperation("image", err)
	if err != nil {
		d.forgetMarkers(names)
		d.settleForgotten(left)
		return fromOS(err)
	}
	switch err = commit(); {
	case err == nil:
		d.forgetMarkers(names)
		d.removeMarkers(names)
	case entity.IsRefusal(err):
		d.forgetMarkers(names)
		d.settleForgotten(names)
	default:
		d.runInBackground(func(ctx context.Context) { d.settleLater(ctx, names) })
	}
	return err
}

// findUnsettled returns the images of a request that may belong to no input: added are the images that the session does not have, and
// left the images with a marker of a crash or of another request. The caller has locked the images of the session.
func (d *Drives) findUnsettled(workspaceID, sessionID string, images map[string][]byte) (added, left []imageName, err error) {
	for _, sum := range slices.Sorted(maps.Keys(images)) {
		name := imageName{workspaceID, sessionID, hex.EncodeToString([]byte(sum))}
		_, err := d.root.Lstat(name.path())
		if errors.Is(err, fs.ErrNotExist) {
			added = append(added, name)
			continue
		}
		if err == nil {
			_, err = d.root.Lstat(name.marker())
		}
		switch {
		case err == nil:
			left = append(left, name)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, nil, err
		}
	}
	return added, left, nil
}

// addImages writes the images that the session does not have, and their markers, durably: steps 1 to 3. After an error it has removed
// them. It syncs the folders also for an image that an ended process has left, which may not have synced them. The caller has locked the
// images of the session.
func (d *Drive) addImages(ctx context.Context, sessionID string, images map[string][]byte, added []imageName) (err error) {
	need := quota.Usage{Files: 1} // a folder
	content := func(name imageName) []byte {
		sum, _ := hex.DecodeString(name.digits) // of EncodeToString
		return images[string(sum)]
	}
	for _, name := range added {
		more := needOf(len(content(name)))
		need.Bytes, need.Files = need.Bytes+more.Bytes, need.Files+more.Files
	}
	if len(added) > 0 {
		if err := d.drives.quota.Require(ctx, d.workspaceID, need); err != nil {
			return err
		}
	}
	defer func() {
		if err == nil {
			return
		}
		for _, name := range added {
			err = errors.Join(err, d.drives.removeImage(name))
		}
	}()
	if err := d.makeImageFolders(sessionID); err != nil {
		return err
	}
	for _, name := range added {
		if err := d.drives.writeMarker(name, content(name)); err != nil {
			return err
		}
	}
	if err := d.syncStaging(); err != nil {
		return err
	}
	for _, name := range added {
		if err := d.drives.root.Link(name.marker(), name.path()); err != nil {
			return err
		}
	}
	return syncFolder(filepath.Join(d.drives.dir, imageName{d.workspaceID, sessionID, ""}.folder()))
}

func needOf(size int) quota.Usage { return need(int64(size), true) }

// makeImageFolders creates the folder of the images of a session, durably.
func (d *Drive) makeImageFolders(sessionID string) error {
	above := d.workspaceID
	for _, name := range []string{ImagesName, sessionID} {
		if err := d.drives.root.Mkdir(above+"/"+name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err := syncFolder(filepath.Join(d.drives.dir, above)); err != nil {
			return err
		}
		above += "/" + name
	}
	return nil
}

// writeMarker writes an image to its marker and syncs the file. A marker without an image was left by a crash.
func (d *Drives) writeMarker(name imageName, content []byte) error {
	if err := d.root.Remove(name.marker()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := d.root.OpenFile(name.marker(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	d.metrics.bytes.WithLabelValues("in").Add(float64(len(content)))
	return errors.Join(err, file.Sync(), file.Close())
}

// removeImage removes an image durably, and then its marker: while there is an image to remove, its marker says so.
func (d *Drives) removeImage(name imageName) error {
	if err := d.root.Remove(name.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	changed := filepath.Join(d.dir, name.folder())
	_ = d.root.Remove(name.folder()) // fails while it has other images
	err := syncFolder(changed)
	if errors.Is(err, fs.ErrNotExist) {
		err = syncFolder(filepath.Dir(changed))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.removeMarker(name)
}

func (d *Drives) removeMarker(name imageName) error {
	if err := d.root.Remove(name.marker()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeMarkers removes the markers of images that an input names.
func (d *Drives) removeMarkers(names []imageName) {
	for _, name := range names {
		if err := d.removeMarker(name); err != nil {
			d.log.Warn("cannot remove the marker of an image; the next sweep tries again", "workspace", name.workspaceID, "session", name.sessionID, "error", err)
		}
	}
}

// rememberMarkers has the sweep and all other requests spare markers, because a request in this process settles them; forgetMarkers ends
// this for the one request.
func (d *Drives) rememberMarkers(names []imageName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		d.unsettled[name]++
	}
}

func (d *Drives) forgetMarkers(names []imageName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		if d.unsettled[name]--; d.unsettled[name] == 0 {
			delete(d.unsettled, name)
		}
	}
}

// settleLater settles images when the outcome of their command can be asked for. If the process ends before, the next one does it.
func (d *Drives) settleLater(ctx context.Context, names []imageName) {
	if !retry.Pause(ctx, settleAfter) {
		return
	}
	d.forgetMarkers(names)
	for _, name := range names {
		if err := d.settleLeft(ctx, name); err != nil {
			d.log.Warn("cannot settle an image; the next sweep tries again", "workspace", name.workspaceID, "session", name.sessionID, "error", err)
		}
	}
}

// adoptMarkers settles the images later, except images that a request in this process settles: an ended process has left the
// markers of the others.
func (d *Drives) adoptMarkers(names []imageName) {
	d.mu.Lock()
	names = slices.DeleteFunc(slices.Clone(names), func(name imageName) bool { return d.unsettled[name] > 0 })
	for _, name := range names {
		d.unsettled[name]++
	}
	d.mu.Unlock()
	if len(names) > 0 {
		d.runInBackground(func(ctx context.Context) { d.settleLater(ctx, names) })
	}
}

// settleLeft settles an image unless a request in this process settles it. It returns the errors of the journal and the disk.
func (d *Drives) settleLeft(ctx context.Context, name imageName) error {
	unlock, err := d.imageLocks.acquire(ctx, name.workspaceID+"/"+name.sessionID)
	if err != nil {
		return err
	}
	defer unlock()
	if d.isUnsettled(name) {
		return nil
	}
	return d.settleImage(name)
}

func (d *Drives) isUnsettled(name imageName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.unsettled[name] > 0
}

// settleForgotten settles the images that no other request settles. The caller has locked the images of the session.
func (d *Drives) settleForgotten(names []imageName) {
	for _, name := range names {
		if d.isUnsettled(name) {
			continue
		}
		if err := d.settleImage(name); err != nil {
			d.log.Warn("cannot settle an image; the next sweep tries again", "workspace", name.workspaceID, "session", name.sessionID, "error", err)
		}
	}
}

// settleImage removes an image that no input names, and its marker in any case. The caller has locked the images of the session.
func (d *Drives) settleImage(name imageName) error {
	isNamed, err := d.isNamed(name)
	switch {
	case err != nil:
		return err
	case isNamed:
		return d.removeMarker(name)
	}
	d.log.Info("removed an image that belongs to no input", "workspace", name.workspaceID, "session", name.sessionID)
	return d.removeImage(name)
}

// isNamed reports whether an input of the session names an image.
func (d *Drives) isNamed(name imageName) (bool, error) {
	ctx, cancel := context.WithTimeout(d.running, askTimeout)
	defer cancel()
	page, err := entity.AskAsPlatform[*wirev1.Page](ctx, d.asker, entity.KindWorkspace, name.workspaceID, &wirev1.List{
		Name: session.ImageList, Prefix: []byte(session.Key(name.sessionID, name.digits)), Limit: 1,
	})
	return len(page.GetRows()) > 0, err
}

// ReadImage returns an image of a session. It returns NotFound if the session has no such image in a file, or the file was damaged, which
// is logged; Unavailable; and errors of the disk.
func (d *Drives) ReadImage(ctx context.Context, workspaceID, sessionID string, sum []byte) ([]byte, error) {
	if err := errors.Join(validateWorkspaceID(workspaceID), validateSessionID(sessionID)); err != nil {
		return nil, err
	}
	r, err := d.cache.reserve(ctx, "")
	if err != nil {
		return nil, err
	}
	defer d.cache.release(r)
	content, err := d.root.ReadFile(imageName{workspaceID, sessionID, hex.EncodeToString(sum)}.path())
	if err != nil {
		return nil, fromOS(err)
	}
	if read := sha256.Sum256(content); string(read[:]) != string(sum) {
		d.log.Error("an image of a session is damaged", "workspace", workspaceID, "session", sessionID, "image", hex.EncodeToString(sum))
		return nil, errNotFound
	}
	return content, nil
}

// RemoveImages removes the images of a session durably. The caller has removed their rows, and no input can name an image any more. It
// does nothing if there are none.
func (d *Drives) RemoveImages(ctx context.Context, workspaceID, sessionID string) error {
	if err := errors.Join(validateWorkspaceID(workspaceID), validateSessionID(sessionID)); err != nil {
		return err
	}
	// As in KeepImages, descriptors are reserved before the lock: in the other order both could wait for each other.
	r, err := d.cache.reserve(ctx, "")
	if err != nil {
		return err
	}
	defer d.cache.release(r)
	unlock, err := d.imageLocks.acquire(ctx, workspaceID+"/"+sessionID)
	if err != nil {
		return err
	}
	defer unlock()
	folder := imageName{workspaceID: workspaceID, sessionID: sessionID}.folder()
	if err := d.root.RemoveAll(folder); err != nil {
		return fromOS(err)
	}
	err = syncFolder(filepath.Join(d.dir, workspaceID, ImagesName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return fromOS(err)
}
