package anchors_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/drive/anchors"
	"github.com/atelier-run/atelier/entity"
)

// fakeMissed has rows of MissedList for the workspaces of ids.
type fakeMissed struct {
	ids     []string
	removed []string
	putErr  error
}

func (m *fakeMissed) Owners(_, after string, limit int) ([]string, error) {
	var page []string
	for _, id := range m.ids {
		if id > after && len(page) < limit {
			page = append(page, id)
		}
	}
	return page, nil
}

func (m *fakeMissed) Put(_ context.Context, workspaceID string, rows ...entity.Row) error {
	for _, row := range rows {
		if row.List == anchors.MissedList && row.Key == anchors.MissedKey && row.Message == nil && m.putErr == nil {
			m.removed = append(m.removed, workspaceID)
		}
	}
	return m.putErr
}

func TestConvertMissed(t *testing.T) {
	many := make([]string, 0, 100)
	for i := range 100 { // more than a page
		many = append(many, "ws_"+strings.Repeat("a", i+1))
	}
	for name, test := range map[string]struct {
		workspace fakeWorkspace
		putErr    error
		sent      int
		removed   []string
	}{
		"check is requested, then the row is removed": {sent: 100, removed: many},
		"refused request keeps the row":               {workspace: fakeWorkspace{refusal: entity.Errorf(entity.Unavailable, "busy")}, sent: 100},
		"row that cannot be removed stays":            {putErr: errors.New("journal is closed"), sent: 100},
	} {
		w, rows := &test.workspace, &fakeMissed{ids: many, putErr: test.putErr}
		anchors.New(w, w, slog.New(slog.DiscardHandler)).ConvertMissed(t.Context(), rows)
		if len(w.sent) != test.sent || w.sent[0] != "RequestAnchorCheck" || !slices.Equal(rows.removed, test.removed) {
			t.Errorf("%s: %d commands, removed %d rows", name, len(w.sent), len(rows.removed))
		}
	}
}
