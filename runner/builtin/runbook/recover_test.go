package runbook_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/runner/builtin/runbook"
)

// TestProcessesContinueEachOther carries out random runbooks in processes that are lost at random lines; their turns end
// with questions and sleeps. Every effect that must not be repeated happens at most once, in order; one is missing only if its
// process was lost before it could happen, and Recover has then returned it.
func TestProcessesContinueEachOther(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var text strings.Builder
		kind := rapid.SampledFrom([]string{"$ run", "say", "start", "ask", "sleep 1h", "await"})
		kinds := rapid.SliceOfN(kind, 1, 12).Draw(r, "kinds")
		for i, kind := range kinds {
			switch kind {
			case "sleep 1h", "await":
				fmt.Fprintln(&text, kind)
			case "start":
				fmt.Fprintf(&text, "start %d\n  say x\n", i)
			default:
				fmt.Fprintf(&text, "%s %d\n", kind, i)
			}
		}
		w := newWorld(t)
		state := runbook.State{Steps: parsed(t, text.String())}
		var lost []string
		for turns := 0; state.IsActive(); turns++ {
			if turns > 4*len(kinds) {
				r.Fatalf("the runbook does not end:\n%s", text.String())
			}
			w.saves = nil
			before := len(w.log)
			w.run(&state)
			if len(w.saves) > 0 && rapid.IntRange(0, 3).Draw(r, "is lost") == 0 {
				at := rapid.IntRange(0, len(w.saves)-1).Draw(r, "lost at")
				state = w.saves[at]
				w.log = w.log[:min(before+effectsBefore(w.saves[:at]), len(w.log))]
				entry, hadEffect := entryOf(*state.Running), rapid.Bool().Draw(r, "had its effect")
				if hadEffect && entry != "" {
					w.log = append(w.log, entry)
				}
				if state.Recover() != nil && !hadEffect {
					lost = append(lost, entry)
				}
				continue
			}
			w.now = w.now.Add(2 * time.Hour)
			if !state.AnswerQuestion("yes") {
				state.Wake()
			}
		}
		var got, want []string
		for _, entry := range w.log {
			if !strings.HasPrefix(entry, "ask") && !strings.HasPrefix(entry, "sleep") && !strings.HasPrefix(entry, "await") {
				first, _, _ := strings.Cut(entry, " [")
				first, _, _ = strings.Cut(first, " \"")
				got = append(got, first)
			}
		}
		for _, step := range parsed(t, text.String()) {
			if entry := entryOf(step); entry != "" && !slices.Contains(lost, entry) {
				want = append(want, entry)
			}
		}
		if !slices.Equal(got, want) {
			r.Fatalf("the effects are %q, want %q, without %q\n%s", got, want, lost, text.String())
		}
	})
}

// entryOf returns the beginning of the log entry of a step that is not repeated, or "".
func entryOf(s runbook.Step) string {
	switch s.Kind {
	case runbook.Shell:
		return "shell " + s.Text
	case runbook.Say, runbook.Start:
		return string(s.Kind) + " " + s.Text
	}
	return ""
}

// effectsBefore returns how many entries of the log belong to the steps before the last saved state: the steps that were saved
// as running. An await without children has no effect, and neither has a sleep that is over.
func effectsBefore(saves []runbook.State) int {
	n := 0
	for _, s := range saves {
		isIdle := s.Running.Kind == runbook.Await && len(s.Children) == 0 && !s.HasLostChild
		if !isIdle {
			n++
		}
	}
	return n
}
