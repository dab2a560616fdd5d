package node

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/tests/race"
)

// children returns the ids of the direct children of a session.
func (s *agentSite) children(id string) []string {
	s.Helper()
	var page struct{ Items []detail }
	s.must(http.StatusOK, s.request("GET", sessionPath(id)+"/sessions", nil), &page)
	var all []string
	for _, d := range page.Items {
		all = append(all, d.ID)
	}
	return all
}

// family is the runbook of a session with two children. One child has a child. All of them run until the folder end exists.
const family = `$ mkdir -p work
start First
    say From the first.
    start Grandchild
        $ until [ -e end ]; do sleep 0.05; done
        $ pwd
        say From the grandchild.
    await
    say The first is done.
start Second
    say From the second.
await
say The family is done.`

// TestChildrenByRunbook has the agent of a session start children and wait for them.
func TestChildrenByRunbook(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	testChildrenByRunbook(t)
}

func testChildrenByRunbook(t *testing.T, changes ...func(*Options)) {
	s := newAgentSite(t, changes...)
	s.makeFolder("home")
	id := s.startSession(family, fields{"cwd": "home", "tier": "frontier"})
	line := s.follow(id)
	line.awaitLine("tool Await sessions")
	first, grandchild := s.family(id)
	for _, child := range append(s.children(id), grandchild) {
		d := s.describe(child)
		want := id
		if child == grandchild {
			want = first
		}
		if d.CreatedBySessionID != want || d.Cwd != "home" {
			t.Errorf("the child %s is %+v", d.Title, d)
		}
		var history struct{ Items []row }
		s.must(http.StatusOK, s.request("GET", sessionPath(child)+"/history?order=asc&limit=1", nil), &history)
		if sender := history.Items[0].Sender; sender.Kind != "session" || sender.SessionID != want {
			t.Errorf("the prompt of %s is by %+v", d.Title, sender)
		}
	}
	if titles := []string{s.describe(first).Title, s.describe(grandchild).Title}; !slices.Equal(titles, []string{"First", "Grandchild"}) {
		t.Errorf("the titles are %q", titles)
	}
	s.makeFolder("home/end")
	if end := line.awaitTerminal(); end.String() != "terminal complete" {
		t.Errorf("the parent has ended with %s: %q", end, line.order)
	}
	line.expect("text", "text The family is done.")
	awaited := line.rows[slices.IndexFunc(line.rows, func(r row) bool {
		return r.Title == "Await sessions" && r.Status == "completed"
	})]
	if !strings.Contains(awaited.Output, "The first is done.") || !strings.Contains(awaited.Output, "From the second.") {
		t.Errorf("the parent has awaited %q", awaited.Output)
	}
	below := s.follow(grandchild)
	below.awaitTerminal()
	if outputs := strings.Join(below.of("tool"), "\n"); !strings.Contains(outputs, "/home") {
		t.Errorf("the tools of the grandchild: %s", outputs)
	}

	// The next turn of a child has the tier that it has inherited.
	long := s.duration()
	s.send(first, "messages", fields{"text": "$ exec sleep " + long})
	s.awaitProcess(long)
	s.send(first, "messages", fields{"text": "say Later.", "behavior": "follow_up"})
	var queued struct{ PendingInputs []struct{ Tier string } }
	s.must(http.StatusOK, s.request("GET", sessionPath(first), nil), &queued)
	if len(queued.PendingInputs) != 1 || queued.PendingInputs[0].Tier != "frontier" {
		t.Errorf("the inputs that wait are %+v", queued)
	}
}

// family returns the first child of a session that runs family, and its child, when both exist.
func (s *agentSite) family(id string) (first, grandchild string) {
	s.Helper()
	s.until(func() bool {
		for _, child := range s.children(id) {
			if below := s.children(child); len(below) == 1 {
				first, grandchild = child, below[0]
				return true
			}
		}
		return false
	})
	return first, grandchild
}

func (s *agentSite) makeFolder(path string) {
	s.Helper()
	d, release, err := s.Drives.Open(s.Context(), s.workspaceID)
	s.check(err)
	defer release()
	s.check(d.MakeFolder(s.Context(), path, change))
}

// TestDeletionCascades deletes a session while its children run, and stops the node before the deletion is complete.
func TestDeletionCascades(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	for name, restarts := range map[string]bool{"at once": false, "over a restart": true} {
		t.Run(name, func(t *testing.T) {
			s := newAgentSite(t)
			id := s.startSession(family, nil)
			first, grandchild := s.family(id)
			s.follow(grandchild).awaitLine("tool")
			all := append(s.children(id), id, first, grandchild)
			for _, owner := range []string{id, grandchild} {
				s.must(http.StatusOK, s.request("PUT", "/agent/defaults/root", fields{"sessionId": owner}), nil)
			}
			s.must(http.StatusNoContent, s.request("DELETE", sessionPath(id), nil), nil)
			if restarts {
				s.restart()
			}
			s.refuse(http.StatusNotFound, "not_found", s.request("GET", sessionPath(id), nil)) // sealed at once
			for _, gone := range all {
				s.until(func() bool { return s.request("GET", sessionPath(gone), nil).status == http.StatusNotFound })
				s.refuse(http.StatusNotFound, "not_found", s.request("GET", sessionPath(gone)+"/sessions", nil))
				s.refuse(http.StatusNotFound, "not_found", s.request("POST", sessionPath(gone)+"/messages", fields{"text": "say no"}))
				s.must(http.StatusNoContent, s.request("DELETE", sessionPath(gone), nil), nil)
			}
			s.until(func() bool {
				var now struct{ Session *detail }
				s.must(http.StatusOK, s.request("GET", "/agent/defaults/root", nil), &now)
				return now.Session == nil
			})
			s.until(func() bool {
				var page struct{ Items []detail }
				s.must(http.StatusOK, s.request("GET", sessionsPath, nil), &page)
				return len(page.Items) == 0
			})
			s.until(func() bool { return len(s.running()) == 0 })
		})
	}
}
