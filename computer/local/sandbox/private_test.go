package sandbox_test

import (
	"bufio"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/local/sandbox"
)

// TestPrivateProcesses starts processes that are private and others, and lists the processes that each of them sees.
func TestPrivateProcesses(t *testing.T) {
	for name, nested := range map[string]bool{"with control groups": false, "without control groups": true} {
		t.Run(name, func(t *testing.T) {
			c := open(t, nested)
			// The pattern does not match itself.
			const list = `echo x > /private/mine 2>/dev/null; read x; ` +
				`cat /proc/[0-9]*/cmdline | tr '\0' ' ' | grep -o 'm[a]rked [a-z]*[0-9]' | sort -u | tr '\n' ' '; ls /private | tr '\n' ' '; echo; read x`
			shared1, shared2 := "marked shared1", "marked shared2"
			if !nested {
				shared1 += " " + shared2
				shared2 = shared1
			}
			var looks []func()
			var started []*sandbox.Process
			for _, one := range []struct{ who, sees string }{
				{"agent1", "marked agent1 mine"}, {"agent2", "marked agent2 mine"}, {"shared1", shared1}, {"shared2", shared2},
			} {
				s := shell(list)
				s.Argv, s.Private = append(s.Argv, "marked "+one.who), strings.HasPrefix(one.who, "agent")
				p, err := c.Start(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				started = append(started, p)
				looks = append(looks, func() {
					if _, err := p.Stdin.WriteString("\n"); err != nil {
						t.Error(err)
					}
					if line, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil || strings.TrimSpace(line) != one.sees {
						t.Errorf("%s sees %q, %v, want %q", one.who, line, err, one.sees)
					}
				})
			}
			for _, look := range looks {
				look()
			}
			for _, p := range started {
				if err := p.Signal(unix.SIGKILL); err != nil {
					t.Error(err)
				}
				<-p.Ended()
				if got := p.Result().Status; got.Signal() != unix.SIGKILL {
					t.Errorf("a process that was killed has ended with %v", got)
				}
			}
		})
	}
}
