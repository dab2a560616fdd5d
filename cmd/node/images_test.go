package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cmd/node/nodebackup"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/operator"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/runner/modeltest"
)

// png returns the beginning of an image of a size.
func png(size int) []byte {
	return append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{7}, size-8)...)
}

// TestImagesReachTheModel sends one image in two inputs. The second input is taken after a restart. The model gets the same bytes. The
// deletion of the session removes the file, but not the file of another session with the same image.
func TestImagesReachTheModel(t *testing.T) {
	s := newModelSite(t, "", 0)
	s.models.Reply(modeltest.Reply{Text: []string{"Seen."}}, modeltest.Reply{Text: []string{"Seen."}}, modeltest.Reply{Text: []string{"Seen."}})
	content := png(100_000)
	images := fields{"images": []fields{{"mediaType": "image/png", "data": content}}}
	id := s.startSession("Look.", images)
	s.follow(id).awaitTerminal()
	s.restart()
	s.send(id, "messages", fields{"text": "Look again.", "images": images["images"]})
	line := s.follow(id)
	line.awaitTerminal()
	line.awaitTerminal()
	other := s.startSession("Look, too.", images)
	s.follow(other).awaitTerminal()
	asked := s.asked(0)
	if len(asked) != 3 {
		t.Fatalf("the model was asked %d times", len(asked))
	}
	for i, r := range asked {
		last := r.Last()
		if len(last.Images) != 1 || last.Images[0].MediaType != "image/png" || last.Images[0].Base64 != base64.StdEncoding.EncodeToString(content) {
			t.Errorf("the model got %d images with input %d", len(last.Images), i)
		}
	}
	files := func(id string) int {
		found, err := os.ReadDir(filepath.Join(s.Drives.Dir(), s.workspaceID, drive.ImagesName, id))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return len(found)
	}
	if files(id) != 1 || files(other) != 1 {
		t.Errorf("the sessions have %d and %d files of images, want 1 and 1", files(id), files(other))
	}
	s.must(http.StatusNoContent, s.request("DELETE", sessionPath(id), nil), nil)
	s.until(func() bool { return files(id) == 0 })
	if files(other) != 1 {
		t.Error("the image of another session is gone")
	}
}

// keepImage starts a session with an image, and returns its id.
func (h *home) keepImage(name string, content []byte) string {
	h.Helper()
	id, sum := session.DerivedID(ws, &sessionv1.Sender{}, name), sha256.Sum256(content)
	h.check(h.Drives.KeepImages(h.Context(), ws, id, map[string][]byte{string(sum[:]): content}, func() error {
		_, err := h.askSession(id, &sessionv1.StartSession{
			DefaultTier: workspacev1.Tier_TIER_BALANCED, Prompt: &sessionv1.Input{Text: "Look", Images: []*sessionv1.Image{{
				MediaType: "image/png", Sha256: sum[:], Size: int64(len(content)),
			}}},
		})
		return err
	}))
	return id
}

// TestBackUpAndRestoreImages backs up a node with images in its sessions, and restores it, with an interruption. One image is deleted
// during the backup.
func TestBackUpAndRestoreImages(t *testing.T) {
	h := newHome(t)
	h.done()
	content := png(300_000)
	kept, deleted := h.keepImage("kept", content), h.keepImage("deleted", content)
	to := t.TempDir()
	_, err := h.backUp(t.Context(), to, atStep("images", backupStep, func() { h.check(h.Drives.RemoveImages(t.Context(), ws, deleted)) }))
	h.check(err)
	dir := t.TempDir()
	for _, step := range []string{"verifying the images", "images"} {
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := restoreInto(ctx, dir, to, atStep(step, restoreStep, cancel)); !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at %q: %v", step, err)
		}
	}
	if _, err := restoreInto(t.Context(), dir, to, func(nodebackup.Progress) {}); err != nil {
		t.Fatal(err)
	}
	r, sum := restoredHome(h, dir), sha256.Sum256(content)
	if got, err := r.Drives.ReadImage(t.Context(), ws, kept, sum[:]); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the restored image has %d bytes, %v", len(got), err)
	}
	for _, id := range []string{kept, deleted} {
		if _, err := r.askSession(id, &sessionv1.DescribeSession{}); err != nil {
			t.Errorf("the restored session: %v", err)
		}
	}
	var last operator.NodeProgress
	if _, err := r.backUp(t.Context(), t.TempDir(), func(p operator.NodeProgress) { last = p }); err != nil || last.DoneBytes != last.TotalBytes {
		t.Errorf("a backup of the restored node: %+v, %v", last, err)
	}
}

// storeInRow replaces the row and the file of an image of a session by a row with the content, as earlier versions have it.
func (h *home) storeInRow(id string, content []byte) {
	h.Helper()
	sum := sha256.Sum256(content)
	stored, err := proto.Marshal(&sessionv1.StoredImage{MediaType: "image/png", Content: content})
	h.check(err)
	row := func(key string) persistence.Entry {
		return persistence.Entry{Index: entity.ListIndex(session.ImageList), Value: ws + "\x00" + key, Data: stored}
	}
	committed := make(chan error, 1)
	h.Journal.Append(persistence.Proposal{Partition: h.Router.Partition(ws), Stream: "rows/test", Epoch: 1, Entries: []persistence.Change{
		{Entry: row(session.Key(id, string(sum[:])))}, {Entry: row(session.ImageKey(id, sum[:])), Remove: true},
	}}, func(r persistence.Result) { committed <- r.Err })
	h.check(<-committed)
	h.check(h.Drives.RemoveImages(h.Context(), ws, id))
}

// imageCopies returns numbers for a session: the rows of its images, the rows with the content, the files of its images, and the markers.
func (h *home) imageCopies(id string) (rows, stored, files, markers int) {
	h.Helper()
	v, err := h.Journal.View()
	h.check(err)
	defer v.Close()
	prefix := ws + "\x00" + session.Key(id, "")
	for row, err := range v.Index(h.Router.Partition(ws), persistence.Query{Index: entity.ListIndex(session.ImageList), Value: prefix, Prefix: true}) {
		h.check(err)
		rows++
		var image sessionv1.StoredImage
		h.check(proto.Unmarshal(row.Data, &image))
		if len(image.GetContent()) > 0 {
			stored++
		}
	}
	count := func(pattern string) int {
		found, err := filepath.Glob(pattern)
		h.check(err)
		return len(found)
	}
	dir := strings.ReplaceAll(filepath.Join(h.Drives.Dir(), ws), "[", "\\[")
	return rows, stored, count(filepath.Join(dir, drive.ImagesName, id, "*")), count(filepath.Join(dir, "tmp", id+".*"))
}

// TestImagesOfEarlierVersionsMove starts nodes over images that an earlier version stored in the journal, after a kill at each step of moving
// them. The image is then in one file, and no content is in the journal.
func TestImagesOfEarlierVersionsMove(t *testing.T) {
	content := png(300_000)
	sum := sha256.Sum256(content)
	errKilled := errors.New("killed")
	for name, kill := range map[string]func(h *home, id string){
		"before": func(*home, string) {},
		"after a part of the marker": func(h *home, id string) {
			marker := filepath.Join(h.Drives.Dir(), ws, "tmp", id+"."+hex.EncodeToString(sum[:])+".image")
			h.check(os.WriteFile(marker, content[:1000], 0o600))
		},
		"after the file, before the row": func(h *home, id string) {
			err := h.Drives.KeepImages(t.Context(), ws, id, map[string][]byte{string(sum[:]): content}, func() error { return errKilled })
			if !errors.Is(err, errKilled) {
				t.Error(err)
			}
		},
		"after the row, before the marker is removed": func(h *home, id string) {
			err := h.Drives.KeepImages(t.Context(), ws, id, map[string][]byte{string(sum[:]): content}, func() error {
				_, err := h.Router.Ask(t.Context(), entity.Command{
					Kind: entity.KindSession, Identity: session.Identity(ws, id), Principal: entity.Platform(),
					Message: &sessionv1.MoveImage{Image: &sessionv1.Image{MediaType: "image/png", Sha256: sum[:], Size: int64(len(content))}},
				})
				return errors.Join(err, errKilled)
			})
			if !errors.Is(err, errKilled) {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			h.done()
			id := h.keepImage("earlier", content)
			h.storeInRow(id, content)
			if rows, stored, files, _ := h.imageCopies(id); rows != 1 || stored != 1 || files != 0 {
				t.Fatalf("the earlier version has %d rows, %d with content, and %d files", rows, stored, files)
			}
			kill(h, id)
			h.stop()
			h.start()
			h.put("wakes the drive", "")
			// Nothing is left to move after the row, and the marker is settled minutes later, like every marker of an ended process.
			isMoved := name == "after the row, before the marker is removed"
			h.until(func() bool {
				_, stored, files, markers := h.imageCopies(id)
				return stored == 0 && files == 1 && (markers == 0 || isMoved)
			})
			if rows, _, _, _ := h.imageCopies(id); rows != 1 {
				t.Errorf("%d rows", rows)
			}
			if got, err := h.Drives.ReadImage(t.Context(), ws, id, sum[:]); err != nil || !bytes.Equal(got, content) {
				t.Errorf("the image has %d bytes, %v", len(got), err)
			}
		})
	}
}
