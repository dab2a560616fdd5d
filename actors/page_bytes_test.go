package actors_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// mostPageBytes is the size of a page with the row at which it ends, in bytes.
const mostPageBytes = 256<<10 + 70<<10

// A page of a list with large rows is short, and the pages together have each row once.
func TestListPagesOfLargeRows(t *testing.T) {
	b := newBench(t, withHall)
	b.createHall("ws_1")
	var rows []entity.Row
	for n := range 99 {
		key := fmt.Sprintf("usr_2%02d", n)
		rows = append(rows, entity.Row{List: "people", Key: key, Message: &workspacev1.Membership{UserId: key + strings.Repeat("x", 64<<10)}})
	}
	if err := b.router.Put(t.Context(), "ws_1", rows...); err != nil {
		t.Fatal(err)
	}
	read, pages := 0, 0
	for after := []byte(nil); pages == 0 || len(after) > 0; pages++ {
		page, err := b.list(hall, "ws_1", "usr_1", &wirev1.List{Name: "people", Limit: 100, After: after})
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(page); size > mostPageBytes || len(page.GetRows()) == 0 {
			t.Fatalf("a page has %d rows, %d bytes", len(page.GetRows()), size)
		}
		read, after = read+len(page.GetRows()), page.GetNext()
	}
	if read != 100 || pages < 20 {
		t.Errorf("%d rows on %d pages", read, pages)
	}
}

// A page of activity with long paths is short, with an index and without, in both orders, and the pages together have each row once.
func TestActivityPagesOfLargeRows(t *testing.T) {
	const number = 120
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	long := strings.TrimSuffix(strings.Repeat(strings.Repeat("x", 250)+"/", 16), "/")
	for n := range number {
		b.mustAsk(record("ws_1", &activityv1.Operation{
			Kind: activityv1.Kind_KIND_RENAME, EntryKind: activityv1.EntryKind_ENTRY_KIND_FILE, FromPath: fmt.Sprintf("a/%s%d", long, n),
			Path: fmt.Sprintf("a/%s%d", long, n+1), Author: &activityv1.Author{Actor: "terminal"},
		}))
	}
	for name, q := range map[string]*activityv1.ReadFeed{
		"all": {}, "descending": {Descending: true}, "below a folder": {Path: "a", Subtree: true},
	} {
		q.Limit = 100
		read := 0
		for more := true; more; more = q.GetPosition() != 0 {
			page := b.mustAsk(entity.Command{Kind: entity.KindActivity, Identity: "ws_1", Principal: person("usr_1"), Message: q}).(*activityv1.Page)
			if size := len(page.GetItems()); size > mostPageBytes {
				t.Fatalf("%s: a page has %d bytes", name, size)
			}
			read += strings.Count(string(page.GetItems()), `{"seq":`)
			q.Position = page.GetNext()
		}
		if read != number {
			t.Errorf("%s: %d rows, want %d", name, read, number)
		}
	}
}
