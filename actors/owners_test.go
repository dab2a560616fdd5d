package actors_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/workspace"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// listedWorkspaces has a workspace kind that writes rows of lists.
func listedWorkspaces(b *bench) {
	listed := workspace.Kind
	listed.Name = "listed"
	b.extra = append(b.extra, listed)
}

// TestOwners verifies that each owner is returned once, regardless of the size of pages and the number of its rows.
func TestOwners(t *testing.T) {
	b := newBench(t, listedWorkspaces)
	if got, err := b.router.Owners(t.Context(), audit.List, "", 10); err != nil || len(got) != 0 {
		t.Fatalf("of nobody: %v, %v", got, err)
	}
	var want []string
	for i := range 23 {
		id := fmt.Sprintf("ws_%02d", i)
		want = append(want, id)
		b.changeListed(id, &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "usr_ada"})
		for j := range i % 4 {
			b.changeListed(id, &workspacev1.SetDefaultModel{Tier: workspacev1.Tier(1 + j)})
		}
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		for after := ""; ; {
			page, err := b.router.Owners(t.Context(), audit.List, after, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("%v, %v", page, err)
			}
			if len(page) == 0 {
				break
			}
			got, after = append(got, page...), page[len(page)-1]
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%d at a time: %v", limit, got)
		}
	}
	if got, err := b.router.Owners(t.Context(), "members.none", "", 10); err != nil || len(got) != 0 {
		t.Errorf("of another list: %v, %v", got, err)
	}
}

// TestRowsOfOwner verifies that pages have all rows of an owner and no others, whether its entity is active or not.
func TestRowsOfOwner(t *testing.T) {
	b := newBench(t, listedWorkspaces)
	for _, id := range []string{"ws_a", "ws_ab"} {
		b.changeListed(id, &workspacev1.CreateWorkspace{Slug: "acme", Name: "Acme", CreatorId: "usr_ada"})
		for i := range 4 {
			b.changeListed(id, &workspacev1.SetDefaultModel{Tier: workspacev1.Tier(1 + i)})
		}
	}
	b.stop()
	b.start()
	for limit := int32(1); limit <= 6; limit++ {
		asked, rows := &wirev1.List{Name: audit.List, Limit: limit}, 0
		for {
			page, err := b.router.Rows(t.Context(), "ws_a", asked)
			if err != nil || len(page.GetRows()) > int(limit) {
				t.Fatalf("%d rows, %v", len(page.GetRows()), err)
			}
			rows += len(page.GetRows())
			if asked.After = page.GetNext(); len(asked.After) == 0 {
				break
			}
		}
		if rows != 5 {
			t.Errorf("%d at a time: %d rows", limit, rows)
		}
	}
}

func (b *bench) changeListed(id string, m workspacev1.Command) {
	b.t.Helper()
	if _, err := b.router.Ask(b.t.Context(), entity.Command{Kind: "listed", Identity: id, Principal: entity.Platform(), Message: m}); err != nil {
		b.t.Fatal(err)
	}
}
