package computertest

import (
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/computertest/probe"
	"github.com/atelier-run/atelier/computer/local/sandbox"
)

// ExposedInOneNamespace returns the ways to a private process that stay open when a driver runs all processes in one process namespace.
func ExposedInOneNamespace() []string {
	ways := []string{"arguments", "signal"}
	if sandbox.LandlockVersion() == 0 {
		ways = append(ways, "environment", "memory", "maps", "files", "root", "program", "read_of_memory", "trace", "copies_of_files")
	}
	return ways
}

// testPrivate starts a private process with a secret in its environment, its arguments and, if it has one, its own folder. A command, a
// terminal and another private process look for it.
func testPrivate(t *testing.T, w *workspace) {
	secret := "secret-" + strings.ReplaceAll(t.Name(), "/", "-")
	private := w.spec(`[ -z "$ATELIER_PRIVATE" ] || echo "$SECRET" > "$ATELIER_PRIVATE/config"; echo $$; read x; echo "$x"`)
	private.Argv, private.Env, private.Private = append(private.Argv, secret), []string{"SECRET=" + secret}, true
	victim := w.start(t, private)
	pid, err := victim.lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	which := "all"
	if !w.Isolated {
		which = strings.TrimSpace(pid)
	}
	for name, change := range map[string]func(*computer.Spec){
		"command": func(*computer.Spec) {}, "private process": func(s *computer.Spec) { s.Private = true },
		"terminal": func(s *computer.Spec) { s.Terminal = &computer.TerminalSize{Columns: 80, Rows: 24} },
	} {
		s := w.spec("")
		s.Argv = []string{computer.ProgramPath, probe.Command, probe.Spy, which}
		change(&s)
		spy := w.start(t, s)
		spy.write(t, secret+"\n")
		if s.Terminal != nil {
			spy.write(t, "\x04") // the end of the input
		}
		out, exit := spy.finish(t)
		var ways []string
		for _, line := range strings.Fields(strings.ReplaceAll(out, " ", "_")) {
			if line != secret && !slices.Contains(w.Exposes, line) { // a terminal echoes its input
				ways = append(ways, line)
			}
		}
		if exit.Status != 0 || !slices.Equal(ways, []string{"done"}) {
			t.Errorf("%s: exit %+v, gets at a private process by %q", name, exit, ways)
		}
	}
	victim.write(t, "alive\n")
	victim.expect(t, "alive")
}
