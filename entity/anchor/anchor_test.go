package anchor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/anchor"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	active   = workspacev1.AnchorState_ANCHOR_STATE_ACTIVE
	broken   = workspacev1.AnchorState_ANCHOR_STATE_BROKEN
	orphaned = workspacev1.AnchorState_ANCHOR_STATE_ORPHANED
)

// anchorAt returns an anchor with a path, a state and the seq of the last row before it was bound.
func anchorAt(path string, state workspacev1.AnchorState, seq uint64) *workspacev1.Anchor {
	return &workspacev1.Anchor{Id: "anc_" + path, Path: path, State: state, Seq: seq, CreatedAt: 1_800_000_000_000}
}

// activeAnchor returns an active anchor that has followed the row with a seq.
func activeAnchor(path string, seq uint64) *workspacev1.Anchor {
	return &workspacev1.Anchor{Path: path, State: active, Seq: seq}
}

// describeSteps formats steps for comparison.
func describeSteps(steps []anchor.Step) string {
	var all []string
	for _, s := range steps {
		switch c := s.Command.(type) {
		case *workspacev1.MoveAnchor:
			all = append(all, fmt.Sprintf("move %s %s", c.GetFromPath(), c.GetToPath()))
		case *workspacev1.BreakAnchor:
			all = append(all, "break "+c.GetPath())
		case *workspacev1.RepairAnchor:
			all = append(all, "repair "+c.GetPath())
		default:
			all = append(all, fmt.Sprintf("%T", c))
		}
	}
	return strings.Join(all, ", ")
}

func TestFollow(t *testing.T) {
	const (
		write   = activityv1.Kind_KIND_WRITE
		create  = activityv1.Kind_KIND_CREATE
		remove  = activityv1.Kind_KIND_DELETE
		rename  = activityv1.Kind_KIND_RENAME
		summary = activityv1.Kind_KIND_CHANGED_SUMMARY
		restore = activityv1.Kind_KIND_RESTORE
	)
	for name, test := range map[string]struct {
		row     anchor.Row
		anchors []*workspacev1.Anchor
		exist   string
		want    string
	}{
		"renamed itself":       {anchor.Row{Kind: rename, Seq: 5, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{anchorAt("a", active, 4)}, "b", "move a b"},
		"a folder above":       {anchor.Row{Kind: rename, Seq: 5, FromPath: "a", Path: "x/y"}, []*workspacev1.Anchor{anchorAt("a/b/c", active, 1)}, "", "move a/b/c x/y/b/c"},
		"only a common prefix": {anchor.Row{Kind: rename, Seq: 5, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{anchorAt("ab", active, 1)}, "", ""},
		"made after a rename":  {anchor.Row{Kind: rename, Seq: 5, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{anchorAt("a", active, 6)}, "a b", ""},
		"made after, and gone": {anchor.Row{Kind: rename, Seq: 5, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{anchorAt("a", active, 6)}, "b", ""},
		"broken does not move": {anchor.Row{Kind: rename, Seq: 5, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{anchorAt("a/x", broken, 1)}, "b b/x", ""},
		"renamed to repairs":   {anchor.Row{Kind: rename, Seq: 5, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{anchorAt("b/x", broken, 1)}, "b b/x", "repair b/x"},
		"renamed over breaks":  {anchor.Row{Kind: rename, Seq: 5, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{anchorAt("b/x", active, 1)}, "b", "break b/x"},
		"deleted":              {anchor.Row{Kind: remove, Path: "a"}, []*workspacev1.Anchor{anchorAt("a", active, 1), anchorAt("a/b", active, 1), anchorAt("c", active, 1)}, "c", "break a, break a/b"},
		"deleted, there again": {anchor.Row{Kind: remove, Path: "a"}, []*workspacev1.Anchor{anchorAt("a", active, 1)}, "a", ""},
		"deleted when broken":  {anchor.Row{Kind: remove, Path: "a"}, []*workspacev1.Anchor{anchorAt("a", broken, 1)}, "", ""},
		"created":              {anchor.Row{Kind: create, Path: "a"}, []*workspacev1.Anchor{anchorAt("a", broken, 1)}, "a", "repair a"},
		"created, gone again":  {anchor.Row{Kind: create, Path: "a"}, []*workspacev1.Anchor{anchorAt("a", broken, 1)}, "", ""},
		"a tree was copied in": {anchor.Row{Kind: create, Path: "a"}, []*workspacev1.Anchor{anchorAt("a/b", broken, 1)}, "a a/b", "repair a/b"},
		"written":              {anchor.Row{Kind: write, Path: "a"}, []*workspacev1.Anchor{anchorAt("a", broken, 1), anchorAt("b", broken, 1)}, "a b", "repair a"},
		"orphaned stays":       {anchor.Row{Kind: create, Path: "a"}, []*workspacev1.Anchor{anchorAt("a", orphaned, 1)}, "a", ""},
		"a generated tree":     {anchor.Row{Kind: summary, Path: "a/dist"}, []*workspacev1.Anchor{anchorAt("a/dist/x", active, 1), anchorAt("a/dist/y", broken, 1)}, "a/dist/y", "break a/dist/x, repair a/dist/y"},
		"restored": {anchor.Row{Kind: restore}, []*workspacev1.Anchor{anchorAt("a", active, 1), anchorAt("b", active, 1), anchorAt("c", broken, 1), anchorAt("d", orphaned, 1)},
			"a c d", "break b, repair c"},
		"followed before":      {anchor.Row{Kind: rename, Seq: 3, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{activeAnchor("a", 3)}, "b", ""},
		"not followed yet":     {anchor.Row{Kind: rename, Seq: 4, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{activeAnchor("a", 3)}, "b", "move a b"},
		"bound after a rename": {anchor.Row{Kind: rename, Seq: 4, FromPath: "a", Path: "b"}, []*workspacev1.Anchor{activeAnchor("a", 6)}, "a b", ""},
		"read":                 {anchor.Row{Kind: activityv1.Kind_KIND_READ, Path: "a"}, []*workspacev1.Anchor{anchorAt("a", active, 1)}, "", ""},
	} {
		steps, err := anchor.Follow(test.row, test.anchors, func(path string) (bool, error) {
			return strings.Contains(" "+test.exist+" ", " "+path+" "), nil
		})
		if got := describeSteps(steps); err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
}

// TestFollowRowsBehindTheDrive follows an operation that leaves an entry at the path of an anchor, and the rename of that entry,
// when the drive has had both: the anchor moves with the entry.
func TestFollowRowsBehindTheDrive(t *testing.T) {
	for name, first := range map[string]anchor.Row{
		"written":  {Kind: activityv1.Kind_KIND_WRITE, Seq: 4, Path: "a"},
		"created":  {Kind: activityv1.Kind_KIND_CREATE, Seq: 4, Path: "a"},
		"replaced": {Kind: activityv1.Kind_KIND_RENAME, Seq: 4, FromPath: "t", Path: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			a := anchorAt("a", active, 1)
			for _, row := range []anchor.Row{first, {Kind: activityv1.Kind_KIND_RENAME, Seq: 5, FromPath: "a", Path: "b"}} {
				steps, err := anchor.Follow(row, []*workspacev1.Anchor{a}, func(path string) (bool, error) { return path == "b", nil })
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range steps {
					switch c := s.Command.(type) {
					case *workspacev1.MoveAnchor:
						a = anchorAt(c.GetToPath(), active, c.GetSeq())
					case *workspacev1.BreakAnchor:
						a = anchorAt(a.GetPath(), broken, c.GetSeq())
					}
				}
			}
			if a.GetPath() != "b" || a.GetState() != active {
				t.Errorf("the anchor is %v at %s", a.GetState(), a.GetPath())
			}
		})
	}
}

func TestFollowReturnsDriveErrors(t *testing.T) {
	away := errors.New("away")
	steps, err := anchor.Follow(anchor.Row{Kind: activityv1.Kind_KIND_RESTORE}, []*workspacev1.Anchor{anchorAt("a", active, 1)},
		func(string) (bool, error) { return false, away })
	if !errors.Is(err, away) || len(steps) > 0 {
		t.Errorf("%v, %v", steps, err)
	}
}

// TestParse checks that Parse decodes the rows of activity.Encode.
func TestParse(t *testing.T) {
	stored := activity.Encode(activity.Row{Seq: 7, At: 5, Operation: &activityv1.Operation{
		Kind: activityv1.Kind_KIND_RENAME, Path: `b"\é`, FromPath: "a/ü", Author: &activityv1.Author{Actor: "system"},
	}})
	row, err := anchor.Parse(stored)
	want := anchor.Row{Kind: activityv1.Kind_KIND_RENAME, Seq: 7, Path: `b"\é`, FromPath: "a/ü"}
	if err != nil || row != want {
		t.Errorf("%+v, %v", row, err)
	}
	for _, bad := range []activity.Stored{nil, {4}, {4, '{'}} {
		if _, err := anchor.Parse(bad); err == nil {
			t.Errorf("%q is a row", bad)
		}
	}
}

func TestMoves(t *testing.T) {
	for kind := range activityv1.Kind_name {
		k := activityv1.Kind(kind)
		reads := k == activityv1.Kind_KIND_READ || k == activityv1.Kind_KIND_VIEWED_SUMMARY || k == activityv1.Kind_KIND_UNSPECIFIED
		if anchor.Moves(k) == reads {
			t.Errorf("%v", k)
		}
	}
}
