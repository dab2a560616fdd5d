package drive

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// ImageRows reads the rows of images that earlier versions stored.
type ImageRows interface {
	// FindRow returns the first row behind a position of a list, of any owner, that satisfies want, and the position of the row. found is
	// false if there is no such row.
	FindRow(list, after string, want func(row []byte) bool) (position string, row []byte, found bool, err error)
}

// MoveImages moves the images of sessions that earlier versions stored in rows of the journal to files beside the drives. The rows are the
// only record of the images that remain to be moved:
//
//  1. MoveImages finds the next row with the content of an image.
//  2. KeepImages makes the file durable, within the quota of the drive, with a marker.
//  3. MoveImage replaces the row, in one batch, by the row of an image in a file. Then the marker is removed.
//
// A kill before the third step leaves the row, and the file is found by its marker: it is removed, or becomes the file of the next attempt. A
// kill after the step leaves the file and its row. Until an image is moved, the runner reads it from its row.
//
// The images of a partition are moved one after the other, so that one is in memory, until ctx ends. MoveImages reads the rows of all images
// once. An image that cannot be moved, for example because its drive is full, remains in its row until MoveImages is called again.
func (d *Drives) MoveImages(ctx context.Context, rows ImageRows) {
	moved, bytes, left := 0, 0, 0
	var lastErr error
	for after := ""; ctx.Err() == nil; {
		position, row, found, err := rows.FindRow(session.ImageList, after, hasContent)
		if err != nil {
			lastErr = err
		}
		if err != nil || !found {
			break
		}
		after = position
		switch n, err := d.moveImage(ctx, position, row); {
		case err != nil:
			left, lastErr = left+1, err
		default:
			moved, bytes = moved+1, bytes+n
		}
	}
	if moved > 0 {
		d.log.Info("moved images of sessions from the journal to files", slog.Int("images", moved), slog.Int("bytes", bytes))
	}
	if lastErr != nil && ctx.Err() == nil {
		d.log.Warn("images of sessions remain in the journal; the next start tries again", slog.Int("images", left), slog.Any("error", lastErr))
	}
}

// hasContent reports whether a row of session.ImageList has the content of its image.
func hasContent(row []byte) bool {
	var stored sessionv1.StoredImage
	return proto.Unmarshal(row, &stored) == nil && len(stored.GetContent()) > 0
}

// moveImage moves the image of a row with a position in session.ImageList, and returns its size.
func (d *Drives) moveImage(ctx context.Context, position string, row []byte) (int, error) {
	workspaceID, key, _ := strings.Cut(position, "\x00")
	sessionID, _, _ := strings.Cut(key, "\x00")
	var stored sessionv1.StoredImage
	if err := proto.Unmarshal(row, &stored); err != nil {
		return 0, err
	}
	content := stored.GetContent()
	sum := sha256.Sum256(content)
	return len(content), d.KeepImages(ctx, workspaceID, sessionID, map[string][]byte{string(sum[:]): content}, func() error {
		_, err := d.asker.Ask(ctx, entity.Command{
			Kind: entity.KindSession, Identity: session.Identity(workspaceID, sessionID), Principal: entity.Platform(),
			Message: &sessionv1.MoveImage{Image: &sessionv1.Image{MediaType: stored.GetMediaType(), Sha256: sum[:], Size: int64(len(content))}},
		})
		return err
	})
}
