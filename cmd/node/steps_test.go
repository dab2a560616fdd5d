package node

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/actors/clock"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// A wall is a wall clock that a test sets while a node runs. Between two steps it runs as fast as the clock of the bubble.
type wall struct {
	started time.Time
	offset  atomic.Int64
}

// newStepping returns a home with a wall clock that the test sets. It is called in a bubble.
func newStepping(t *testing.T) (*home, *wall) {
	// The actor system counts dead letters for a second after the last one.
	t.Cleanup(func() { time.Sleep(2 * time.Second) })
	w := &wall{started: time.Now()}
	return newHomeAt(t, w), w
}

func (w *wall) now() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }

func (w *wall) step(by time.Duration) { w.offset.Add(int64(by)) }

// clock returns a steady clock over the wall clock.
func (w *wall) clock() func() time.Time {
	return clock.Steady(func() (time.Time, time.Duration) {
		return w.now(), time.Since(w.started)
	})
}

// slowed returns the longest time that passes while a steady clock advances by d.
func slowed(d time.Duration) time.Duration { return d*16/15 + time.Millisecond }

// summarized returns the number of operations in a generated tree that the summaries count, and the number of summaries.
func (h *home) summarized(tree string) (operations, summaries int) {
	h.Helper()
	for position := uint64(0); ; {
		page := h.ask(entity.KindActivity, &activityv1.ReadFeed{Position: position, Limit: 500}).(*activityv1.Page)
		var rows []struct {
			Event struct {
				Kind, Path string
				Count      int
			}
		}
		h.check(json.Unmarshal([]byte("["+strings.Trim(string(page.GetItems()), "[]")+"]"), &rows))
		for _, row := range rows {
			if row.Event.Kind == "changed-summary" && row.Event.Path == tree {
				operations += row.Event.Count
				summaries++
			}
		}
		if position = page.GetNext(); position == 0 {
			return operations, summaries
		}
	}
}

// TestStepUnderSummary verifies that a summary is recorded when its window has passed, regardless of steps of the wall clock.
func TestStepUnderSummary(t *testing.T) {
	for name, steps := range map[string][]time.Duration{
		"none": nil, "back a minute": {-time.Minute}, "back a day": {-24 * time.Hour}, "back twice": {-time.Minute, -time.Minute},
		"ahead": {time.Hour}, "ahead and back": {time.Hour, -time.Hour}, "back and ahead": {-time.Hour, time.Hour},
		"back and less ahead": {-time.Hour, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, w := newStepping(t)
				h.check(h.drive().MakeFolder(t.Context(), ".git", change))
				for turn := range 3 { // from the second turn on the wall clock is behind at the beginning
					began := time.Now()
					h.put(".git/a", "x")
					highest, at := time.Duration(0), time.Duration(0)
					for _, step := range steps {
						w.step(step)
						at += step
						highest = max(highest, at)
						time.Sleep(100 * time.Millisecond)
					}
					for operations := 0; operations <= turn && time.Since(began) < 5*time.Second; operations, _ = h.summarized(".git") {
						time.Sleep(time.Millisecond)
					}
					took := time.Since(began)
					if took > slowed(activity.FoldWindow)+10*time.Millisecond || highest == 0 && took < activity.FoldWindow {
						t.Fatalf("summary %d came after %v", turn+1, took)
					}
				}
				time.Sleep(time.Minute)
				if operations, summaries := h.summarized(".git"); operations != 3 || summaries != 3 {
					t.Errorf("%d summaries count %d operations", summaries, operations)
				}
			})
		})
	}
}

// TestStepsUnderSummaries verifies that each operation is counted once while the wall clock is set repeatedly.
func TestStepsUnderSummaries(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			h, w := newStepping(t)
			random := rand.New(rand.NewPCG(seed, 1))
			trees := []string{".git", "dist"}
			done := map[string]int{}
			for _, tree := range trees {
				h.check(h.drive().MakeFolder(t.Context(), tree, change))
			}
			for range 60 {
				tree := trees[random.IntN(len(trees))]
				h.put(tree+"/a", "x")
				done[tree]++
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
				if random.IntN(2) == 0 {
					w.step(time.Duration(random.Int64N(int64(2*time.Hour))) - time.Hour)
				}
			}
			time.Sleep(slowed(activity.FoldWindow) + 10*time.Millisecond)
			for _, tree := range trees {
				if operations, _ := h.summarized(tree); operations != done[tree] {
					t.Errorf("seed %d: the summaries of %s count %d operations of %d", seed, tree, operations, done[tree])
				}
			}
		})
	}
}

// TestStepsUnderAnchors verifies that a broken anchor is orphaned once, thirty days after it broke, regardless of steps of the
// wall clock.
func TestStepsUnderAnchors(t *testing.T) {
	const (
		month = 30 * 24 * time.Hour
		// look is the longest time until a step ahead has an effect.
		look = 15 * time.Second
	)
	for name, steps := range map[string][]time.Duration{
		"back before it is due":    {month - 10*time.Minute, -time.Hour},
		"back by months":           {month / 2, -2 * month, 2*month + month/2 - time.Hour},
		"ahead and back":           {month - time.Hour, -month, month, -month},
		"back as soon as it broke": {-month},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, w := newStepping(t)
				h.done()
				h.put("a", "x")
				h.ask(entity.KindWorkspace, &workspacev1.CreateAnchor{AnchorId: "anc_1", Path: "a", Kind: workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH})
				h.check(h.drive().Remove(t.Context(), "a", change))
				h.settle()
				due := h.brokenAt("anc_1").Add(month)
				for _, step := range steps {
					w.step(step)
					time.Sleep(2 * look)
					if state := h.anchor("anc_1"); state != "broken a" {
						t.Fatalf("%v before it is due the anchor is %s", due.Sub(h.options.Clock()), state)
					}
				}
				w.step(due.Add(-time.Minute).Sub(w.now()))
				time.Sleep(look)
				left := due.Sub(h.options.Clock())
				w.step(-time.Hour)
				time.Sleep(left - time.Second)
				if state := h.anchor("anc_1"); state != "broken a" {
					t.Errorf("%v before it is due the anchor is %s", due.Sub(h.options.Clock()), state)
				}
				time.Sleep(slowed(left) - left + time.Second + 10*time.Millisecond)
				if state := h.anchor("anc_1"); state != "orphaned a" {
					t.Errorf("%v after it was due the anchor is %s", h.options.Clock().Sub(due), state)
				}
				w.step(2 * month)
				time.Sleep(2 * look)
				w.step(-2 * month)
				time.Sleep(2 * look)
				if n := strings.Count(h.audit(), "anchor.orphaned"); n != 1 {
					t.Errorf("the anchor was orphaned %d times", n)
				}
			})
		})
	}
	t.Run("ahead beyond it", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h, w := newStepping(t)
			h.done()
			h.put("a", "x")
			h.ask(entity.KindWorkspace, &workspacev1.CreateAnchor{AnchorId: "anc_1", Path: "a", Kind: workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH})
			h.check(h.drive().Remove(t.Context(), "a", change))
			h.settle()
			w.step(month)
			time.Sleep(look + time.Second)
			if state := h.anchor("anc_1"); state != "orphaned a" {
				t.Errorf("the anchor is %s", state)
			}
		})
	})
}

// brokenAt returns the time at which an anchor broke.
func (h *home) brokenAt(id string) time.Time {
	h.Helper()
	for _, a := range h.ask(entity.KindWorkspace, &workspacev1.ListAnchors{}).(*workspacev1.Anchors).GetAnchors() {
		if a.GetId() == id && a.GetBrokenAt() > 0 {
			return time.UnixMilli(a.GetBrokenAt())
		}
	}
	h.Fatalf("the anchor %s is not broken", id)
	return time.Time{}
}
