package computer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// maxNamed bounds the workspaces that an error of CutOff names. The log has all.
const maxNamed = 10

// processNames are the names of the kinds of processes for operators. Listeners that are being opened have none.
var processNames = map[computerv1.ProcessKind]string{
	computerv1.ProcessKind_PROCESS_KIND_EXEC: "command", computerv1.ProcessKind_PROCESS_KIND_TERMINAL: "terminal",
	computerv1.ProcessKind_PROCESS_KIND_SESSION: "agent", computerv1.ProcessKind_PROCESS_KIND_APP: "app",
}

// CutOff returns an error that names the processes that run, by workspace, and logs each workspace. It is called when the node waits for no
// process any more. Processes that are idle, and processes that an earlier call has named, are left out; it returns nil if no other runs.
func (f *Fleet) CutOff() error {
	running := f.processes.takeUnnamed()
	var names []string
	for _, workspaceID := range slices.Sorted(maps.Keys(running)) {
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(running[workspaceID])) {
			parts = append(parts, count(running[workspaceID][kind], processNames[kind]))
		}
		all := strings.Join(parts, ", ")
		f.o.Log.Warn("cutting off processes at the drain deadline", slog.String("workspace", workspaceID), slog.String("processes", all))
		names = append(names, fmt.Sprintf("%s of workspace %s", all, workspaceID))
	}
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed], count(more, "other workspace"))
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("processes were cut off at the drain deadline: %s", strings.Join(names, "; "))
}

// takeUnnamed returns the numbers of the processes that CutOff has not named yet, by workspace and kind, and marks them as named.
func (p *processes) takeUnnamed() map[string]map[computerv1.ProcessKind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	numbers := map[string]map[computerv1.ProcessKind]int{}
	for _, r := range p.running {
		if processNames[r.kind] == "" || r.isIdle() || r.isNamed {
			continue
		}
		r.isNamed = true
		if numbers[r.WorkspaceID] == nil {
			numbers[r.WorkspaceID] = map[computerv1.ProcessKind]int{}
		}
		numbers[r.WorkspaceID][r.kind]++
	}
	return numbers
}

// count returns a number with a noun.
func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
