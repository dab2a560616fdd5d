package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/drive/anchors"
	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// anchor returns the state and the path of an anchor, or "none".
func (h *home) anchor(id string) string {
	h.Helper()
	for _, a := range h.ask(entity.KindWorkspace, &workspacev1.ListAnchors{}).(*workspacev1.Anchors).GetAnchors() {
		if a.GetId() == id {
			return strings.ToLower(strings.TrimPrefix(a.GetState().String(), "ANCHOR_STATE_")) + " " + a.GetPath()
		}
	}
	return "none"
}

func TestAnchorsFollowTheDrive(t *testing.T) {
	h := newHome(t)
	h.done()
	ctx := t.Context()
	h.check(h.drive().MakeFolder(ctx, "apps", change))
	h.check(h.drive().MakeFolder(ctx, "apps/shop", change))
	h.put("apps/shop/main", "x")
	for id, path := range map[string]string{"anc_shop": "apps/shop", "anc_main": "apps/shop/main"} {
		h.ask(entity.KindWorkspace, &workspacev1.CreateAnchor{AnchorId: id, Path: path, Kind: workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH})
	}
	move := func(from, to string) {
		_, err := h.drive().Move(ctx, from, to, true, change)
		h.check(err)
	}
	expect := func(shop, main string) {
		t.Helper()
		h.settle()
		if s, m := h.anchor("anc_shop"), h.anchor("anc_main"); s != shop || m != main {
			t.Errorf("anchors %q and %q, want %q and %q", s, m, shop, main)
		}
	}
	expect("active apps/shop", "active apps/shop/main")
	move("apps", "sites")
	expect("active sites/shop", "active sites/shop/main")
	move("sites/shop/main", "main")
	move("main", "moved")
	expect("active sites/shop", "active moved")
	h.check(h.drive().Remove(ctx, "sites", change))
	h.check(h.drive().Remove(ctx, "moved", change))
	expect("broken sites/shop", "broken moved")
	h.put("moved", "again")
	expect("broken sites/shop", "active moved")
	h.check(h.drive().MakeFolder(ctx, "elsewhere", change))
	h.check(h.drive().MakeFolder(ctx, "elsewhere/shop", change))
	h.stop()
	h.start()
	move("elsewhere", "sites")
	expect("active sites/shop", "active moved")
	h.check(h.drive().Remove(ctx, "moved", change))
	h.put("moved", "at once")
	expect("active sites/shop", "active moved")
}

// TestAnchorsOfUnreadableDrive verifies that a drive that cannot be read does not block its partition, and that its anchors are
// checked later, by a later process if need be.
func TestAnchorsOfUnreadableDrive(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("a", "x")
	h.ask(entity.KindWorkspace, &workspacev1.CreateAnchor{AnchorId: "anc_1", Path: "a", Kind: workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH})
	h.settle()
	h.stop()
	// The next process cannot read the drive, and the file is gone.
	drive := filepath.Join(h.dir, "drives", ws)
	h.check(os.Remove(filepath.Join(drive, "files", "a")))
	h.check(os.Rename(drive, drive+".away"))
	h.start()
	row := []byte("\x03" + `{"seq":9,"event":{"kind":"delete","at":9,"path":"a"}}`)
	for range 2 { // a row may be delivered twice
		if err := h.anchors.React(t.Context(), ws, row); err != nil {
			t.Errorf("React for an unreadable drive: %v", err)
		}
	}
	if state, check := h.anchor("anc_1"), h.workspace().GetAnchorCheck(); state != "active a" || check == 0 {
		t.Errorf("anchor %s, check %d", state, check)
	}
	// The operator stops the node to repair the drive.
	h.stop()
	h.check(os.Rename(drive+".away", drive))
	h.start()
	h.until(func() bool { return h.workspace().GetAnchorCheck() == 0 })
	if state := h.anchor("anc_1"); state != "broken a" {
		t.Errorf("anchor %s", state)
	}
}

// TestConvertMissedAnchorChecks verifies that a check that a version without tasks has noted in a row is done by this version.
func TestConvertMissedAnchorChecks(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("a", "x")
	h.ask(entity.KindWorkspace, &workspacev1.CreateAnchor{AnchorId: "anc_1", Path: "a", Kind: workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH})
	h.settle()
	h.check(h.Router.Put(t.Context(), ws, entity.Row{List: anchors.MissedList, Key: anchors.MissedKey, Message: &wirev1.Done{}}))
	h.stop()
	h.check(os.Remove(filepath.Join(h.dir, "drives", ws, "files", "a")))
	h.start()
	h.until(func() bool { return h.anchor("anc_1") == "broken a" && h.workspace().GetAnchorCheck() == 0 })
	h.until(func() bool {
		waiting, err := h.Router.Owners(t.Context(), anchors.MissedList, "", 1)
		h.check(err)
		return len(waiting) == 0
	})
}

// TestBrokenAnchorIsOrphaned verifies that the workspace's timer orphans a broken anchor without a request, also in a later
// process.
func TestBrokenAnchorIsOrphaned(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("a", "x")
	h.ask(entity.KindWorkspace, &workspacev1.CreateAnchor{AnchorId: "anc_1", Path: "a", Kind: workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH})
	h.check(h.drive().Remove(t.Context(), "a", change))
	h.until(func() bool { return h.anchor("anc_1") == "broken a" })
	h.stop()
	h.last.Add((31 * 24 * time.Hour).Milliseconds())
	h.start()
	h.until(func() bool { return h.anchor("anc_1") == "orphaned a" })
}

// TestAnchorsIgnoreOlderRows verifies that a row that did not concern an anchor when it was recorded does not change the anchor
// when the next process reacts to the row again.
func TestAnchorsIgnoreOlderRows(t *testing.T) {
	h := newHome(t)
	h.done()
	h.put("site", "old")
	h.put("site.new", "new")
	h.ask(entity.KindWorkspace, &workspacev1.CreateAnchor{AnchorId: "anc_1", Path: "site.new", Kind: workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH})
	h.settle()
	for _, move := range [][2]string{{"site", "site.old"}, {"site.new", "site"}} {
		_, err := h.drive().Move(t.Context(), move[0], move[1], true, change)
		h.check(err)
	}
	h.settle()
	for range 2 {
		if state := h.anchor("anc_1"); state != "active site" {
			t.Errorf("anchor %s", state)
		}
		h.stop()
		h.start()
		h.settle()
	}
	// An earlier rename does not move an anchor that was set afterwards.
	h.ask(entity.KindWorkspace, &workspacev1.Reanchor{AnchorId: "anc_1", Path: "site.new"})
	h.stop()
	h.start()
	h.settle()
	if state := h.anchor("anc_1"); state != "active site.new" {
		t.Errorf("anchor %s", state)
	}
}
