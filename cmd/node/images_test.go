package node

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/atelier-run/atelier/cmd/node/nodebackup"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/operator"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/runner/modeltest"
)

// png returns the beginning of an image of a size.
func png(size int) []byte {
	return append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{7}, size-8)...)
}

// TestImagesReachTheModel sends one image in two inputs, of which the second is taken after a restart. The model gets the same bytes. The
// deletion of the session removes the file, but not that of another session with the same image.
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

// TestBackUpAndRestoreImages backs up a node whose sessions have images, of which one is deleted meanwhile, and restores it, with an
// interruption.
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
