package actors_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/workspace"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// listedWorkspaces are workspaces whose rules leave rows in lists.
func listedWorkspaces(b *bench) {
	b.extra = append(b.extra, actors.Guard(actors.Rules[*workspacev1.Workspace, workspacev1.Command, workspacev1.Event]{
		Kind: "listed", Zero: workspace.Zero, Decide: workspace.Decide, Evolve: workspace.Evolve, Reply: workspace.Reply,
		Rows: workspace.Rows,
	}, workspace.Check).WithLists(map[string]actors.List{audit.List: {}}))
}

// Owners are found once each, however pages cut them, and however many rows they have.
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

func (b *bench) changeListed(id string, m workspacev1.Command) {
	b.t.Helper()
	if _, err := b.router.Ask(b.t.Context(), entity.Command{Kind: "listed", Identity: id, Principal: entity.Platform(), Message: m}); err != nil {
		b.t.Fatal(err)
	}
}
