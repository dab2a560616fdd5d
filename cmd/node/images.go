package node

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// imageMover moves the images of sessions that earlier versions stored in rows of the journal to files beside the drives. The rows are the
// only record of what remains to be moved:
//
//  1. moveAll finds the next row with the content of an image.
//  2. Drives.KeepImages makes the file durable, within the quota of the drive, with a marker.
//  3. MoveImage replaces the row, in one batch, by the row of an image in a file. Then the marker is removed.
//
// A kill before the third step leaves the row, and the file is found by its marker: it is removed, or becomes the file of the next attempt. A
// kill after the step leaves the file and its row. Until an image is moved, the runner reads it from its row.
type imageMover struct {
	asker  entity.Asker
	drives *drive.Drives
	log    *slog.Logger
}

// moveAll moves the images of a partition one after the other, so that it holds one in memory, until ctx ends. It reads the rows of all
// images once. An image that cannot be moved, for example because its drive is full, remains in its row until moveAll is called again.
func (m imageMover) moveAll(ctx context.Context, p actors.OwnedPartition) {
	moved, bytes, left := 0, 0, 0
	var lastErr error
	for after := ""; ctx.Err() == nil; {
		position, row, found, err := p.FindRow(session.ImageList, after, hasContent)
		if err != nil {
			lastErr = err
		}
		if err != nil || !found {
			break
		}
		after = position
		switch n, err := m.move(ctx, position, row); {
		case err != nil:
			left, lastErr = left+1, err
		default:
			moved, bytes = moved+1, bytes+n
		}
	}
	if moved > 0 {
		m.log.Info("moved images of sessions from the journal to files", slog.Int("images", moved), slog.Int("bytes", bytes))
	}
	if lastErr != nil && ctx.Err() == nil {
		m.log.Warn("images of sessions remain in the journal; the next start tries again", slog.Int("images", left), slog.Any("error", lastErr))
	}
}

// hasContent reports whether a row of session.ImageList has the content of its image.
func hasContent(row []byte) bool {
	var stored sessionv1.StoredImage
	return proto.Unmarshal(row, &stored) == nil && len(stored.GetContent()) > 0
}

// move moves the image of a row with a position in session.ImageList, and returns its size.
func (m imageMover) move(ctx context.Context, position string, row []byte) (int, error) {
	workspaceID, key, _ := strings.Cut(position, "\x00")
	sessionID, _, _ := strings.Cut(key, "\x00")
	var stored sessionv1.StoredImage
	if err := proto.Unmarshal(row, &stored); err != nil {
		return 0, err
	}
	content := stored.GetContent()
	sum := sha256.Sum256(content)
	return len(content), m.drives.KeepImages(ctx, workspaceID, sessionID, map[string][]byte{string(sum[:]): content}, func() error {
		_, err := m.asker.Ask(ctx, entity.Command{
			Kind: entity.KindSession, Identity: session.Identity(workspaceID, sessionID), Principal: entity.Platform(),
			Message: &sessionv1.MoveImage{Image: &sessionv1.Image{MediaType: stored.GetMediaType(), Sha256: sum[:], Size: int64(len(content))}},
		})
		return err
	})
}
