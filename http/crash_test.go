package http_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/atelier-run/atelier/entity"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	"github.com/atelier-run/atelier/tests/race"
)

// crashCase is a request that affects several entities, with the two states that are allowed after a crash and a restart.
type crashCase struct {
	prepare func(*crashTest)
	method  string
	target  func(*crashTest) string
	body    string
	// as is the name of the account that sends the request.
	as string
	// isComplete reports whether all effects exist, isUntouched whether none does. Exactly one must be true.
	isComplete, isUntouched func(*crashTest) bool
}

// crashTest is a node that crashes during a crashCase.
type crashTest struct {
	*stage
	invitation, key string
}

var crashCases = map[string]crashCase{
	"a workspace is created": {
		method: "POST", target: at("/v1/workspaces"), body: `{"slug":"acme","name":"Acme"}`, as: "ann",
		isComplete: func(c *crashTest) bool {
			return c.lists("ann", "acme", "active") && c.members("ann", "acme") == "ann@example.com owner" &&
				c.logged("ann", "acme", "workspace.created") == 1
		},
		isUntouched: func(c *crashTest) bool { return c.holder("acme") == "" && !c.lists("ann", "acme", "") },
	},
	"a workspace is renamed": {
		prepare: (*crashTest).found,
		method:  "PATCH", target: at("/v1/workspaces/acme"), body: `{"slug":"apex","publicUrlBreakAcknowledged":true}`, as: "ann",
		isComplete: func(c *crashTest) bool {
			return c.lists("ann", "apex", "active") && c.holder("acme") == "" && c.logged("ann", "apex", "workspace.renamed") == 1
		},
		isUntouched: func(c *crashTest) bool {
			return c.lists("ann", "acme", "active") && c.holder("apex") == "" && c.logged("ann", "acme", "workspace.renamed") == 0
		},
	},
	"an invitation is accepted": {
		prepare: (*crashTest).invite,
		method:  "POST", target: func(c *crashTest) string { return "/v1/user/invitations/" + c.invitation + "/accept" }, as: "bob",
		isComplete: func(c *crashTest) bool {
			return c.lists("bob", "acme", "active") && strings.Contains(c.members("ann", "acme"), "bob@example.com editor") &&
				c.logged("ann", "acme", "invitation.accepted") == 1
		},
		isUntouched: func(c *crashTest) bool {
			return !c.lists("bob", "acme", "") && !strings.Contains(c.members("ann", "acme"), "bob") &&
				c.logged("ann", "acme", "invitation.accepted") == 0
		},
	},
	"a member is removed": {
		prepare: (*crashTest).join,
		method:  "DELETE", target: func(c *crashTest) string { return "/v1/ws/acme/members/" + c.idOf("bob") }, as: "ann",
		isComplete: func(c *crashTest) bool {
			return !c.lists("bob", "acme", "") && c.members("ann", "acme") == "ann@example.com owner" && c.logged("ann", "acme", "member.removed") == 1
		},
		isUntouched: func(c *crashTest) bool {
			return c.lists("bob", "acme", "active") && c.logged("ann", "acme", "member.removed") == 0
		},
	},
	"a key is revoked": {
		prepare: (*crashTest).issue,
		method:  "DELETE", target: func(c *crashTest) string { return "/v1/user/api-keys/" + c.key }, as: "ann",
		isComplete: func(c *crashTest) bool {
			return c.credential(c.key).GetRevokedAt() > 0 && c.logged("ann", "acme", "api_key.revoked") == 1
		},
		isUntouched: func(c *crashTest) bool {
			return c.credential(c.key).GetRevokedAt() == 0 && c.logged("ann", "acme", "api_key.revoked") == 0
		},
	},
}

func at(target string) func(*crashTest) string { return func(*crashTest) string { return target } }

// TestCrashBeforeEachSync crashes the node, with the loss of all data that was not synced, before each sync of the journal
// during the request. After the restart all effects exist, or none.
func TestCrashBeforeEachSync(t *testing.T) {
	race.Skip(t, "it sends thousands of requests one after the other")
	for name, s := range crashCases {
		t.Run(name, func(t *testing.T) {
			syncs := 0
			for !s.crash(t, syncs+1) {
				syncs++
			}
			if syncs < 2 {
				t.Errorf("only %d syncs", syncs)
			}
		})
	}
}

// crash runs the case with a crash before the nth sync. It returns true if there are fewer syncs.
func (s crashCase) crash(t *testing.T, nth int) (ended bool) {
	c := &crashTest{stage: newStage(t)}
	c.person("ann")
	c.person("bob")
	if s.prepare != nil {
		s.prepare(c)
	}
	survivor := c.armed(nth)
	answer := request(t, c.node.Server, s.method, s.target(c), c.keys[s.as], s.body)
	left := survivor()
	if left == nil {
		if answer.Code >= 300 || !s.isComplete(c) {
			t.Errorf("without a crash: %d %s", answer.Code, answer.Body)
		}
		return true
	}
	c.stop()
	c.disk = left
	c.start()
	c.settled()
	if whole, nothing := s.isComplete(c), s.isUntouched(c); whole == nothing {
		t.Errorf("crash before sync %d: complete %v, untouched %v", nth, whole, nothing)
	}
	return false
}

// armed copies the disk before the nth sync from now on. survivor returns the copy, or nil if there were fewer syncs.
func (c *crashTest) armed(nth int) (survivor func() *vfs.MemFS) {
	var mu sync.Mutex
	var left *vfs.MemFS
	syncs := []errorfs.OpKind{errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo}
	c.watch(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(syncs, op.Kind) || left != nil {
			return nil
		}
		if nth--; nth == 0 {
			left = c.disk.CrashClone(vfs.CrashCloneCfg{})
		}
		return nil
	})
	return func() *vfs.MemFS {
		c.watch(nil)
		mu.Lock()
		defer mu.Unlock()
		return left
	}
}

// settled waits until all reactions and the work on computers are done.
func (c *crashTest) settled() {
	c.Helper()
	c.follow()
	for _, slug := range []string{"acme", "apex"} {
		if id := c.holder(slug); id != "" {
			c.wait(id)
		}
	}
	c.follow()
}

func (c *crashTest) follow() {
	c.Helper()
	for _, of := range []string{"acme", "apex", c.idOf("ann"), c.idOf("bob"), c.holder("acme"), c.holder("apex"), "ann@example.com", "bob@example.com"} {
		for range 3 {
			if err := c.node.Router.SettleAll(c.Context(), c.node.Router.Partition(of)); err != nil {
				c.Fatal(err)
			}
		}
	}
}

func (c *crashTest) ok(method, target, as, body string) string {
	c.Helper()
	answer := request(c, c.node.Server, method, target, c.keys[as], body)
	if answer.Code >= 300 {
		c.Fatalf("%s %s: %d %s", method, target, answer.Code, answer.Body)
	}
	return answer.Body.String()
}

func (c *crashTest) found() {
	c.ok("POST", "/v1/workspaces", "ann", `{"slug":"acme","name":"Acme"}`)
	c.settled()
}

func (c *crashTest) invite() {
	c.found()
	c.invitation = decoded[struct{ ID string }](c, c.ok("POST", "/v1/ws/acme/invites", "ann", `{"email":"bob@example.com"}`)).ID
}

func (c *crashTest) join() {
	c.invite()
	c.ok("POST", "/v1/user/invitations/"+c.invitation+"/accept", "bob", "")
}

func (c *crashTest) issue() {
	c.found()
	c.key = decoded[struct{ Record struct{ ID string } }](c, c.ok("POST", "/v1/user/api-keys", "ann", `{"name":"laptop"}`)).Record.ID
}

func decoded[V any](c *crashTest, text string) (v V) {
	c.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		c.Fatalf("%v: %s", err, text)
	}
	return v
}

type listedWorkspaces struct {
	User       struct{ ID string }
	Workspaces []struct{ Slug, Status string }
}

// lists reports whether whoami lists a workspace, in a status unless it is "".
func (c *crashTest) lists(name, slug, status string) bool {
	for _, w := range decoded[listedWorkspaces](c, c.ok("GET", "/v1/whoami", name, "")).Workspaces {
		if w.Slug == slug && (status == "" || w.Status == status) {
			return true
		}
	}
	return false
}

// members returns the members of a workspace in their order; "" if the account has no access.
func (c *crashTest) members(name, slug string) string {
	answer := request(c, c.node.Server, "GET", "/v1/ws/"+slug+"/members", c.keys[name], "")
	if answer.Code != 200 {
		return ""
	}
	var all []string
	for _, m := range decoded[struct {
		Items []struct{ Email, Role string }
	}](c, answer.Body.String()).Items {
		all = append(all, m.Email+" "+m.Role)
	}
	return strings.Join(all, ", ")
}

// logged counts the rows of an event in the audit log.
func (c *crashTest) logged(name, slug, event string) int {
	count := 0
	for _, row := range decoded[struct{ Items []struct{ Event string } }](c, c.ok("GET", "/v1/ws/"+slug+"/audit?limit=100", name, "")).Items {
		if row.Event == event {
			count++
		}
	}
	return count
}

func (c *crashTest) holder(slug string) string {
	reply, err := c.node.Router.Ask(c.Context(), entity.Command{
		Kind: entity.KindSlug, Identity: slug, Principal: entity.Platform(), Message: &slugv1.ResolveSlug{},
	})
	if err != nil {
		c.Fatal(err)
	}
	return reply.(*slugv1.Slug).GetWorkspaceId()
}

func (c *crashTest) credential(id string) *credentialv1.Credential {
	reply, err := c.node.Router.Ask(c.Context(), entity.Command{
		Kind: entity.KindCredential, Identity: id, Principal: entity.Platform(), Message: &credentialv1.DescribeCredential{},
	})
	if err != nil {
		c.Fatal(fmt.Errorf("%s: %w", id, err))
	}
	return reply.(*credentialv1.Credential)
}
