package node

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/entity"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
)

// lookForTokens is a script that looks for tokens of agents in the processes of its computer and in the files outside of the drive. It
// writes what it finds to the file of its first argument on the drive.
const lookForTokens = `{ for p in /proc/[0-9]*; do for f in environ cmdline; do
tr '\0' '\n' 2>/dev/null <$p/$f | grep -oE 'atr_[a-z0-9]{40,}' | sed "s|^|$f |"; done; done
grep -rhoE 'atr_[a-z0-9]{40,}' /tmp /var/tmp /run /home /dev/shm /private 2>/dev/null | sed 's|^|file |'
echo looked; } >/drive/$0.tmp 2>/dev/null; mv /drive/$0.tmp /drive/$0`

// strangeAgent is an agent of others that speaks the Agent Client Protocol. Its prompt "hide" leaves a command with its token in the
// arguments, as agents start other programs, and its token in a file of its own folder. Its prompt "look" looks for tokens.
const strangeAgent = `while read -r line; do
id=${line#*\"id\":}; id=${id%%,*}; result='{}'
case $line in
*'"method":"initialize"'*) result='{"protocolVersion":1,"agentCapabilities":{"mcpCapabilities":{"http":true}}}' ;;
*'"method":"session/new"'*) result='{"sessionId":"s"}' ;;
*'"method":"session/prompt"'*) result='{"stopReason":"end_turn"}'
case $line in
*hide*) [ -z "$ATELIER_PRIVATE" ] || echo "$ATELIER_TOKEN" >"$ATELIER_PRIVATE/config"
(exec sh -c 'sleep 1000000; true' hidden "$ATELIER_TOKEN" >/dev/null 2>&1) & continue ;;
*) sh -c "$LOOK" agent ;;
esac ;;
esac
printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done`

// newStrangeSite returns a site with strangeAgent in its sessions.
func newStrangeSite(t *testing.T, changes ...func(*Options)) *agentSite {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agents.yaml")
	config := fmt.Sprintf("agents:\n  strange:\n    command: [sh, -c, %q]\n    env: {LOOK: %q}\ntiers:\n  balanced: {agent: strange}\n",
		strangeAgent, lookForTokens)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return newAgentSite(t, append(changes, func(o *Options) { o.Agents = file })...)
}

// TestTokensOfStrangeAgents has commands, terminals, apps and other agents of a computer look for the token of an agent of others while
// its turn runs.
func TestTokensOfStrangeAgents(t *testing.T) { testTokensOfStrangeAgents(t) }

func testTokensOfStrangeAgents(t *testing.T, changes ...func(*Options)) {
	s := newStrangeSite(t, changes...)
	s.startSession("hide", nil)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.awaitProcess("hidden")[0]))
	s.check(err)
	token := regexp.MustCompile(`atr_[a-z0-9]{40,}`).FindString(string(line))
	if token == "" {
		t.Fatalf("the agent has no token: %q", line)
	}
	argv := func(who string) []string { return []string{"sh", "-c", lookForTokens, who} }
	s.must(http.StatusOK, s.request("POST", "/computer/exec", fields{"argv": argv("command")}), nil)
	s.launch(computer.Launch{
		WorkspaceID: s.workspaceID, Principal: entity.Platform(), Kind: computerv1.ProcessKind_PROCESS_KIND_TERMINAL, Argv: argv("terminal"),
		Terminal: &computer.TerminalSize{Columns: 80, Rows: 24},
	})
	s.must(http.StatusCreated, s.request("MKCOL", "/drive/site", nil), nil)
	s.tool("register_app", fields{
		"workspace": "acme", "path": "site", "slug": "site", "command": "sh -c '" + strings.ReplaceAll(lookForTokens, "'", `'\''`) + "' app",
	}, &struct{}{})
	s.follow(s.startSession("look", nil)).awaitTerminal()
	for _, who := range []string{"command", "terminal", "app", "agent"} {
		var found string
		s.until(func() bool { found = s.read(who); return strings.HasSuffix(found, "looked\n") })
		for _, one := range strings.Split(found, "\n") {
			way, what, _ := strings.Cut(one, " ")
			// An engine makes one process namespace for each container.
			if what == token && (way != "cmdline" || s.options.Computers.Driver != DockerDriver) {
				t.Errorf("the %s of a computer finds the token of an agent: %s", who, way)
			}
		}
		// The control of the experiment: an agent finds its own token.
		if who == "agent" && !strings.Contains(found, "environ atr_") {
			t.Errorf("an agent that looks for tokens finds %q", found)
		}
	}
}
