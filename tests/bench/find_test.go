package bench

import (
	"context"
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
)

// find learns the workspace's id where the data directory was there before.
func (m *Member) find(b testing.TB) {
	found, err := m.Node.Router.Ask(context.Background(), entity.Command{
		Kind: entity.KindSlug, Identity: m.Slug, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	})
	if err != nil {
		b.Fatal(err)
	}
	m.Workspace = found.(*slugv1.Slug).GetWorkspaceId()
}

// cursor makes the member's cursors.
func (m *Member) cursor() activity.Cursor {
	return activity.NewCursor(m.Node.CursorSecret, m.Workspace)
}
