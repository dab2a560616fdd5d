package actors_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// page reads a page of a timeline.
func (b *bench) page(id string, p *wirev1.Principal, q *wirev1.ReadTimeline) (*wirev1.Timeline, error) {
	m, err := b.ask(toScroll(id, p, q))
	if err != nil {
		return nil, err
	}
	return m.(*wirev1.Timeline), nil
}

// versions reads a timeline page by page, and returns the versions of its rows and the number of its pages.
func (b *bench) versions(id string, q *wirev1.ReadTimeline) (all []uint64, pages int) {
	b.t.Helper()
	for {
		page, err := b.page(id, person("usr_1"), q)
		if err != nil {
			b.t.Fatal(err)
		}
		rows, err := entity.TimelineRows(page)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, row := range rows {
			if _, ok := row.Event.(*sessionv1.RowAdded); !ok || row.At == 0 {
				b.t.Fatalf("a row is %v", row)
			}
			all = append(all, row.Version)
		}
		if pages++; page.GetNext() == 0 {
			return all, pages
		}
		q = proto.CloneOf(q)
		q.From = page.GetNext()
	}
}

func TestTimelinePages(t *testing.T) {
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	var want []uint64
	version := uint64(0)
	for range 10 { // a row, two other events, a row
		b.mustAsk(toScroll("ws_1/a", person("usr_1"), rows(1)))
		b.mustAsk(toScroll("ws_1/a", person("usr_1"), &sessionv1.MarkRead{Seq: 2}))
		b.mustAsk(toScroll("ws_1/a", person("usr_1"), rows(1)))
		want = append(want, version+1, version+4)
		version += 4
	}
	b.mustAsk(toScroll("ws_1/a", person("usr_1"), &sessionv1.MarkRead{Seq: 3}))
	reversed := slices.Clone(want)
	slices.Reverse(reversed)
	size := int64(proto.Size(&sessionv1.RowAdded{Seq: 1, Reader: "row"}))
	for name, test := range map[string]struct {
		asked *wirev1.ReadTimeline
		want  []uint64
		pages int
	}{
		"all":                  {&wirev1.ReadTimeline{Limit: 100}, want, 1},
		"without a limit":      {&wirev1.ReadTimeline{}, want, 20},
		"of exactly the limit": {&wirev1.ReadTimeline{Limit: 20}, want, 1},
		"in parts":             {&wirev1.ReadTimeline{Limit: 6}, want, 4},
		"from a row":           {&wirev1.ReadTimeline{From: 8, Limit: 9}, want[3:], 2},
		"from another event":   {&wirev1.ReadTimeline{From: 6, Limit: 100}, want[3:], 1},
		"behind the end":       {&wirev1.ReadTimeline{From: 100, Limit: 100}, nil, 1},
		"descending":           {&wirev1.ReadTimeline{Descending: true, Limit: 6}, reversed, 4},
		"descending from":      {&wirev1.ReadTimeline{Descending: true, From: 10, Limit: 100}, reversed[15:], 1},
		"by bytes":             {&wirev1.ReadTimeline{Limit: 100, Bytes: 5*size + 1}, want, 4},
		"of few bytes":         {&wirev1.ReadTimeline{Limit: 100, Bytes: 1}, want, 20},
		"descending by bytes":  {&wirev1.ReadTimeline{Limit: 100, Bytes: 10 * size, Descending: true}, reversed, 2},
	} {
		if got, pages := b.versions("ws_1/a", test.asked); !slices.Equal(got, test.want) || pages != test.pages {
			t.Errorf("%s: %v in %d pages, want %v in %d", name, got, pages, test.want, test.pages)
		}
	}
	if got, _ := b.versions("ws_1/none", &wirev1.ReadTimeline{Limit: 10}); len(got) > 0 {
		t.Errorf("an entity without events has %v", got)
	}
}

// TestTimelinePageIsBounded verifies that a page reads a limited number of events that are no rows.
func TestTimelinePageIsBounded(t *testing.T) {
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	b.mustAsk(toScroll("ws_1/a", person("usr_1"), rows(1)))
	b.mustAsk(toScroll("ws_1/a", person("usr_1"), &sessionv1.MarkRead{Seq: 9000}))
	b.mustAsk(toScroll("ws_1/a", person("usr_1"), rows(1)))
	for _, descending := range []bool{false, true} {
		got, pages := b.versions("ws_1/a", &wirev1.ReadTimeline{Limit: 10, Descending: descending})
		slices.Sort(got)
		if !slices.Equal(got, []uint64{1, 9002}) || pages != 3 {
			t.Errorf("descending %v: %v in %d pages", descending, got, pages)
		}
	}
}

func TestTimelineAccess(t *testing.T) {
	b := newBench(t, withScrolls, withNotes)
	b.createWorkspace("ws_1", "usr_1")
	b.admitted("ws_1", "usr_2")
	b.mustAsk(toScroll("ws_1/a", person("usr_1"), rows(2)))
	b.mustAsk(toScroll("ws_1/hidden", person("usr_1"), &sessionv1.ChangeAudience{Add: []string{"usr_1"}}))
	b.mustAsk(entity.Command{Kind: freeScroll, Identity: "a", Principal: person("usr_1"), Message: rows(1)})
	read, delta := &wirev1.ReadTimeline{Limit: 1}, &sessionv1.PublishDelta{Text: "x"}
	for _, test := range []struct {
		kind, id string
		who      *wirev1.Principal
		message  proto.Message
		want     entity.Code
	}{
		{scroll, "ws_1/a", person("usr_2"), read, ""},
		{scroll, "ws_1/a", entity.Platform(), read, ""},
		{scroll, "ws_1/a", person("usr_3"), read, entity.NotFound},
		{scroll, "ws_none/a", person("usr_1"), read, entity.NotFound},
		{scroll, "ws_1/hidden", person("usr_1"), read, ""},
		{scroll, "ws_1/hidden", person("usr_2"), read, entity.NotFound},
		{scroll, "ws_1/hidden", entity.Platform(), read, ""},
		{freeScroll, "a", person("usr_1"), read, ""},
		{freeScroll, "a", person("usr_9"), read, entity.NotFound},
		{note, "ws_1/a", person("usr_1"), read, entity.InvalidRequest},
		{entity.KindWorkspace, "ws_1", person("usr_1"), read, entity.InvalidRequest},
		{scroll, "ws_1/a", entity.Platform(), delta, ""},
		{scroll, "ws_1/a", person("usr_1"), delta, entity.Forbidden},
		{scroll, "ws_1/a", person("usr_3"), delta, entity.NotFound},
		{freeScroll, "a", entity.Platform(), delta, ""},
		{freeScroll, "a", person("usr_1"), delta, entity.Forbidden},
		{freeScroll, "a", person("usr_9"), delta, entity.NotFound},
	} {
		_, err := b.ask(entity.Command{Kind: test.kind, Identity: test.id, Principal: test.who, Message: test.message})
		if code(err) != test.want {
			t.Errorf("%s of %s %s for %v: %v, want %q", entity.MessageName(test.message), test.kind, test.id, test.who, err, test.want)
		}
		if test.message != read {
			continue
		}
		follow, err := b.router.FollowTimeline(t.Context(), entity.TimelineSubscription{
			Kind: test.kind, Identity: test.id, Principal: test.who, Send: func(entity.TimelineBatch) error { return nil },
		})
		if code(err) != test.want || (follow == nil) != (err != nil) {
			t.Errorf("the stream of %s %s for %v: %v, want %q", test.kind, test.id, test.who, err, test.want)
		}
	}
	b.mustAsk(toNote("ws_1/a", person("usr_1"), &slugv1.ResolveSlug{}))
}

// TestTimelineDecodesRowsOnly reads a timeline with an event that is no row, and that is large.
func TestTimelineDecodesRowsOnly(t *testing.T) {
	b := newBench(t, withScrolls)
	b.createWorkspace("ws_1", "usr_1")
	const many = 100_000
	audience := &sessionv1.ChangeAudience{Add: slices.Repeat([]string{"usr_1"}, many)}
	b.mustAsk(toScroll("ws_1/a", person("usr_1"), audience))
	b.mustAsk(toScroll("ws_1/a", person("usr_1"), rows(1)))
	allocated := testing.AllocsPerRun(5, func() {
		if got, _ := b.versions("ws_1/a", &wirev1.ReadTimeline{Limit: 10}); !slices.Equal(got, []uint64{2}) {
			t.Errorf("the rows are %v", got)
		}
	})
	if allocated > many/10 {
		t.Errorf("%v objects were allocated", allocated)
	}
}
