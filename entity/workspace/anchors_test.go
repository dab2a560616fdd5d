package workspace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/workspace"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	app     = workspacev1.AnchorKind_ANCHOR_KIND_APP
	agent   = workspacev1.AnchorKind_ANCHOR_KIND_AGENT
	publish = workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH

	active   = workspacev1.AnchorState_ANCHOR_STATE_ACTIVE
	broken   = workspacev1.AnchorState_ANCHOR_STATE_BROKEN
	orphaned = workspacev1.AnchorState_ANCHOR_STATE_ORPHANED
)

func anchoredAt(id, path string, kind workspacev1.AnchorKind) *workspacev1.CreateAnchor {
	return &workspacev1.CreateAnchor{AnchorId: id, Path: path, Kind: kind}
}

// checkAnchor fails the test unless the anchor has the path and the state, and the newest row of the audit log has the
// event.
func (w *world) checkAnchor(id, path string, state workspacev1.AnchorState, event string, p *auditv1.Provenance) {
	w.t.Helper()
	if a := w.s.GetAnchors()[id]; a.GetPath() != path || a.GetState() != state || (a.GetBrokenAt() == 0) != (state == active) {
		w.t.Errorf("%v, want %v at %s", a, state, path)
	}
	if last := w.lastAudit(); last.GetEvent() != event || !proto.Equal(last.GetProvenance(), p) {
		w.t.Errorf("the log says %v, want %s %v", last, event, p)
	}
}

func TestAnchorStates(t *testing.T) {
	w, drive := newReadyWorld(t), entity.Platform()
	create := anchoredAt("anc_1", "a", app)
	create.Settings = []byte(`{"port": 1}`)
	reply, _ := w.must(drive, create)
	want := &workspacev1.Anchor{
		Id: "anc_1", Path: "a", Kind: app, State: active, Settings: create.Settings,
		CreatedAt: noon.UnixMilli(), UpdatedAt: noon.UnixMilli(), Position: 3,
	}
	if !proto.Equal(reply, want) {
		t.Errorf("%v, want %v", reply, want)
	}
	w.checkAnchor("anc_1", "a", active, "anchor.created", &auditv1.Provenance{AnchorId: "anc_1", Path: "a", Kind: "app"})
	w.must(drive, &workspacev1.MoveAnchor{AnchorId: "anc_1", FromPath: "a", ToPath: "b"})
	w.checkAnchor("anc_1", "b", active, "anchor.moved", &auditv1.Provenance{
		AnchorId: "anc_1", FromPath: "a", ToPath: "b", Path: "b", Kind: "app",
	})
	w.must(drive, &workspacev1.BreakAnchor{AnchorId: "anc_1", Path: "b"})
	w.checkAnchor("anc_1", "b", broken, "anchor.broken", &auditv1.Provenance{AnchorId: "anc_1", Path: "b", Kind: "app"})
	w.must(drive, &workspacev1.RepairAnchor{AnchorId: "anc_1", Path: "b"})
	w.checkAnchor("anc_1", "b", active, "anchor.repaired", &auditv1.Provenance{AnchorId: "anc_1", Path: "b", Kind: "app"})
	w.must(drive, &workspacev1.BreakAnchor{AnchorId: "anc_1", Path: "b"})
	w.now = w.now.Add(30*day - time.Millisecond)
	w.mustNotChange(drive, &workspacev1.OrphanAnchors{})
	w.now = w.now.Add(time.Millisecond)
	w.must(drive, &workspacev1.OrphanAnchors{})
	w.checkAnchor("anc_1", "b", orphaned, "anchor.orphaned", &auditv1.Provenance{AnchorId: "anc_1", Path: "b", Kind: "app"})
	w.mustNotChange(drive, &workspacev1.RepairAnchor{AnchorId: "anc_1", Path: "b"})
	reply, _ = w.must(person("ann"), &workspacev1.Reanchor{AnchorId: "anc_1", Path: "c"})
	w.checkAnchor("anc_1", "c", active, "anchor.repaired", &auditv1.Provenance{
		AnchorId: "anc_1", FromPath: "b", ToPath: "c", Path: "c", Kind: "app",
	})
	if !proto.Equal(reply, w.s.GetAnchors()["anc_1"]) || w.lastAudit().GetActorId() != "ann" {
		t.Errorf("%v by %s", reply, w.lastAudit().GetActorId())
	}
	for _, removed := range []bool{true, false} {
		reply, _ := w.must(drive, &workspacev1.RemoveAnchor{AnchorId: "anc_1"})
		if reply.(*workspacev1.Removed).GetRemoved() != removed {
			t.Errorf("%v, want %v", reply, removed)
		}
	}
	if last := w.lastAudit(); last.GetEvent() != "anchor.removed" || last.GetProvenance().GetPath() != "c" {
		t.Errorf("%v", last)
	}
}

// TestStaleAnchorCommands checks that a command for a path that the anchor no longer has is ignored.
func TestStaleAnchorCommands(t *testing.T) {
	w, drive := newReadyWorld(t), entity.Platform()
	w.must(drive, anchoredAt("anc_1", "a", app))
	for _, late := range []workspacev1.Command{
		&workspacev1.MoveAnchor{AnchorId: "anc_1", FromPath: "b", ToPath: "c"},
		&workspacev1.MoveAnchor{AnchorId: "anc_2", FromPath: "a", ToPath: "c"},
		&workspacev1.BreakAnchor{AnchorId: "anc_1", Path: "b"},
		&workspacev1.BreakAnchor{AnchorId: "anc_2", Path: "a"},
		&workspacev1.BreakAnchor{AnchorId: "anc_2"},
		&workspacev1.RepairAnchor{AnchorId: "anc_1", Path: "a"},
		&workspacev1.RepairAnchor{AnchorId: "anc_2"},
		anchoredAt("anc_1", "b", publish),
	} {
		w.mustNotChange(drive, late)
	}
	w.must(drive, &workspacev1.BreakAnchor{AnchorId: "anc_1", Path: "a"})
	w.mustNotChange(drive, &workspacev1.RepairAnchor{AnchorId: "anc_1", Path: "b"})
}

func TestAnchorConflicts(t *testing.T) {
	w, drive := newReadyWorld(t), entity.Platform()
	w.must(drive, anchoredAt("anc_1", "a", app))
	w.must(drive, anchoredAt("anc_2", "a", agent))
	w.must(drive, anchoredAt("anc_3", "a", publish))
	w.must(drive, anchoredAt("anc_4", "a", publish))
	w.must(drive, anchoredAt("anc_5", "b", app))
	w.mustRefuse(drive, anchoredAt("anc_6", "a", app), entity.AnchorConflict)
	w.mustRefuse(drive, anchoredAt("anc_6", "a", agent), entity.AnchorConflict)
	w.mustRefuse(person("ann"), &workspacev1.Reanchor{AnchorId: "anc_5", Path: "a"}, entity.AnchorConflict)
	w.must(drive, &workspacev1.BreakAnchor{AnchorId: "anc_1", Path: "a"})
	w.mustRefuse(person("ann"), &workspacev1.Reanchor{AnchorId: "anc_5", Path: "a"}, entity.AnchorConflict)
	w.must(drive, &workspacev1.MoveAnchor{AnchorId: "anc_5", FromPath: "b", ToPath: "a"})
	w.mustNotChange(drive, &workspacev1.RepairAnchor{AnchorId: "anc_1", Path: "a"})
	w.now = w.now.Add(30 * day)
	w.must(drive, &workspacev1.OrphanAnchors{})
	w.must(drive, &workspacev1.MoveAnchor{AnchorId: "anc_5", FromPath: "a", ToPath: "b"})
	w.must(drive, anchoredAt("anc_6", "a", app))
}

// TestMoveOntoAnotherAnchor checks that a rename onto the folder of another app breaks that app's anchor.
func TestMoveOntoAnotherAnchor(t *testing.T) {
	w, drive := newReadyWorld(t), entity.Platform()
	w.must(drive, anchoredAt("anc_1", "a", app))
	w.must(drive, anchoredAt("anc_2", "b", app))
	_, events := w.must(drive, &workspacev1.MoveAnchor{AnchorId: "anc_2", FromPath: "b", ToPath: "a"})
	one, two := w.s.GetAnchors()["anc_1"], w.s.GetAnchors()["anc_2"]
	if len(events) != 2 || one.GetState() != broken || two.GetState() != active || two.GetPath() != "a" {
		t.Errorf("%v: %v, %v", events, one, two)
	}
}

// TestActiveAnchorConflicts checks that among several anchors with one path only the active one conflicts.
func TestActiveAnchorConflicts(t *testing.T) {
	w, drive := newReadyWorld(t), entity.Platform()
	for i := range 10 {
		id := fmt.Sprintf("anc_%d", i)
		w.must(drive, anchoredAt(id, id, app))
		w.must(drive, &workspacev1.MoveAnchor{AnchorId: id, FromPath: id, ToPath: "a"})
		for j := range i {
			w.mustNotChange(drive, &workspacev1.RepairAnchor{AnchorId: fmt.Sprintf("anc_%d", j), Path: "a"})
		}
	}
}

func TestCreateAnchorIsRefused(t *testing.T) {
	w := newReadyWorld(t)
	for name, settings := range map[string]string{
		"no JSON": "{", "long": `"` + strings.Repeat("x", workspace.MaxSettingsBytes-1) + `"`, "no UTF-8": "\"\xff\"",
	} {
		c := anchoredAt("anc_1", "a", app)
		c.Settings = []byte(settings)
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.mustRefuse(entity.Platform(), c, entity.InvalidRequest)
		})
	}
	w.t = t
	for _, c := range []workspacev1.Command{
		anchoredAt("", "a", app), anchoredAt("anc_1", "", app), anchoredAt("anc_1", "../a", app), anchoredAt("anc_1", "a", 0),
		anchoredAt("anc_1", "a", 9), &workspacev1.MoveAnchor{AnchorId: "anc_1", ToPath: "/"},
	} {
		w.mustRefuse(entity.Platform(), c, entity.InvalidRequest)
	}
	w.mustRefuse(person("ann"), &workspacev1.Reanchor{AnchorId: "anc_1", Path: "a"}, entity.NotFound)
	longest := anchoredAt("anc_0", "a", app)
	longest.Settings = []byte(`"` + strings.Repeat("x", workspace.MaxSettingsBytes-2) + `"`)
	w.must(entity.Platform(), longest)
	w.mustRefuse(person("ann"), &workspacev1.Reanchor{AnchorId: "anc_0", Path: "a//b"}, entity.InvalidRequest)
	w.mustNotChange(person("ann"), &workspacev1.Reanchor{AnchorId: "anc_0", Path: "a"})
}

func TestAnchorLimitAndOrder(t *testing.T) {
	s := open()
	for i := len(s.Anchors); i < workspace.MaxAnchors; i++ {
		id := fmt.Sprintf("anc_x%d", i)
		s.Anchors[id] = &workspacev1.Anchor{Id: id, Path: id, Kind: app, State: active, Position: uint64(i + 10)}
	}
	if code := decide(entity.Platform(), s, anchoredAt("anc_y", "y", app)); code != entity.LimitReached {
		t.Errorf("one more: %q", code)
	}
	delete(s.Anchors, "anc_1")
	if code := decide(entity.Platform(), s, anchoredAt("anc_y", "y", app)); code != "" {
		t.Errorf("the last: %q", code)
	}
	all := workspace.Reply(callBy(entity.Platform()), s, &workspacev1.ListAnchors{}, nil).(*workspacev1.Anchors).GetAnchors()
	for i, a := range all {
		if i > 0 && all[i-1].GetPosition() >= a.GetPosition() {
			t.Fatalf("%v before %v", all[i-1], a)
		}
	}
	if len(all) != workspace.MaxAnchors-1 {
		t.Errorf("%d anchors", len(all))
	}
}

// TestRandomAnchorCommands checks with world.check that the lists follow the state and that no path has two apps.
func TestRandomAnchorCommands(t *testing.T) {
	paths := rapid.SampledFrom([]string{"a", "b", "c"})
	rapid.Check(t, func(t *rapid.T) {
		w := newReadyWorld(t)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 15}).Draw(t, "days")) * day)
			id := anyAnchor.Draw(t, "anchor")
			at := w.s.GetAnchors()[id].GetPath()
			c := rapid.SampledFrom([]workspacev1.Command{
				anchoredAt(id, paths.Draw(t, "path"), workspacev1.AnchorKind(rapid.Int32Range(1, 3).Draw(t, "kind"))),
				&workspacev1.RemoveAnchor{AnchorId: id},
				&workspacev1.Reanchor{AnchorId: id, Path: paths.Draw(t, "to")},
				&workspacev1.MoveAnchor{AnchorId: id, FromPath: at, ToPath: paths.Draw(t, "to")},
				&workspacev1.BreakAnchor{AnchorId: id, Path: at},
				&workspacev1.RepairAnchor{AnchorId: id, Path: at},
				&workspacev1.OrphanAnchors{},
			}).Draw(t, "command")
			_, _, _ = w.send(entity.Platform(), c)
		}
	})
}
