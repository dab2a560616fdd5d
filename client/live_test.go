package client_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/client"
	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/api/apitest"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/tests/nodetest"
)

// timeout is the longest time that a step may take before the test counts as hanging.
const timeout = 5 * time.Minute

// site is a running node.
type site struct {
	*testing.T
	node *node.Node
	url  string
}

func newSite(t *testing.T) *site {
	t.Helper()
	front := nodetest.Listen(t)
	n := nodetest.Start(t, node.Start, node.Options{
		Dir: t.TempDir(), PendingLimit: timeout, HoldTurns: true,
		HTTP: http.Options{Computers: apitest.NewComputers(t), Options: server.Options{Limits: server.Limits{RequestTime: timeout}}},
	})
	front.Serve(n.Server)
	return &site{t, n, front.URL}
}

// person creates a user and returns a client with a key of that user.
func (s *site) person(name string) *client.Client {
	s.Helper()
	c, err := client.New(s.url, nodetest.NewPerson(s, s.node.Server.Admin(), name+"@example.org", name).Key)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(c.Close)
	return c
}

// must returns a function that returns the result of a call, and fails the test if the call failed.
func must[Out any](t *site) func(Out, error) Out {
	return func(out Out, err error) Out {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

// all returns all items of a collection.
func all[Item any](t *site, c client.Collection[Item]) (items []Item) {
	t.Helper()
	for item, err := range c.All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

// mustRefuse fails the test unless err has the code.
func (s *site) mustRefuse(code string, err error) {
	s.Helper()
	if !client.HasCode(err, code) {
		s.Errorf("the error is %v, want %s", err, code)
	}
}

func TestPeople(t *testing.T) {
	s := newSite(t)
	ctx, ada := t.Context(), s.person("ada")
	who := must[client.Whoami](s)(ada.Whoami(ctx))
	if who.User.Email != "ada@example.org" || who.Credential == nil || who.Credential.Kind != "user" || who.Versions.API != 1 {
		t.Errorf("%+v", who)
	}
	first, last := "Ada", "Lovelace"
	profile := must[client.Profile](s)(ada.ChangeProfile(ctx, client.ProfileChange{FirstName: &first, LastName: &last}))
	if again := must[client.Profile](s)(ada.Profile(ctx)); again != profile || again.LastName != last {
		t.Errorf("%+v", again)
	}

	made := must[client.APIKeyCreated](s)(ada.CreateAPIKey(ctx, client.NewAPIKey{Name: "laptop"}))
	if keys := all(s, ada.APIKeys()); len(keys) != 2 || !slices.ContainsFunc(keys, func(k client.APIKey) bool { return k.ID == made.Record.ID }) {
		t.Errorf("%+v", keys)
	}
	revoked := must[client.APIKeyRevoked](s)(ada.RevokeAPIKey(ctx, made.Record.ID))
	if revoked.Prefix != made.Record.Prefix || revoked.RevokedAt == 0 {
		t.Errorf("%+v", revoked)
	}
	other, err := client.New(s.url, made.Key)
	if err != nil {
		t.Fatal(err)
	}
	_, err = other.Whoami(ctx)
	s.mustRefuse("unauthorized", err)

	machine := must[client.SyncMachine](s)(ada.RegisterSyncMachine(ctx, client.NewSyncMachine{Name: "desk", SyncDeviceID: "ABCDEFG-ABCDEFG"}))
	if machines := all(s, ada.SyncMachines()); len(machines) != 1 || machines[0] != machine {
		t.Errorf("%+v", machines)
	}
	if removed := must[client.SyncMachineRemoved](s)(ada.RemoveSyncMachine(ctx, machine.MachineID)); !removed.OK {
		t.Errorf("%+v", removed)
	}
	if grants := all(s, ada.OAuthGrants()); len(grants) != 0 {
		t.Errorf("%+v", grants)
	}
	_, err = ada.RevokeOAuthGrant(ctx, "ogr_none")
	s.mustRefuse("not_found", err)
}

func TestWorkspaces(t *testing.T) {
	s := newSite(t)
	ctx, ada, bob := t.Context(), s.person("ada"), s.person("bob")
	made := must[client.WorkspaceCreated](s)(ada.CreateWorkspace(ctx, client.NewWorkspace{Slug: "acme", Name: "Acme"}))
	_, err := bob.CreateWorkspace(ctx, client.NewWorkspace{Slug: "acme", Name: "Acme"})
	s.mustRefuse("slug_taken", err)

	sent := must[client.Invitation](s)(ada.Invite(ctx, "acme", client.NewInvitation{Email: "bob@example.org", Role: "viewer"}))
	if !strings.Contains(sent.Link, "/invitations/") {
		t.Errorf("the link is %q", sent.Link)
	}
	got := all(s, bob.ReceivedInvitations())
	if len(got) != 1 || got[0].ID != sent.ID || got[0].Workspace.Slug != "acme" || got[0].Inviter == nil || got[0].Inviter.Email != "ada@example.org" {
		t.Fatalf("%+v", got)
	}
	if joined := must[client.InvitationAccepted](s)(bob.AcceptInvitation(ctx, sent.ID)); joined.WorkspaceID != made.WorkspaceID {
		t.Errorf("%+v", joined)
	}
	_, err = ada.RevokeInvitation(ctx, "acme", sent.ID)
	s.mustRefuse("invitation_consumed", err)
	if list := all(s, ada.Invitations("acme")); len(list) != 1 || list[0].ConsumedAt == 0 {
		t.Errorf("%+v", list)
	}

	members := all(s, ada.Members("acme", ""))
	if len(members) != 2 || !members[0].IsBillingUser || members[1].Role != "viewer" {
		t.Fatalf("%+v", members)
	}
	if found := all(s, ada.Members("acme", "BOB")); len(found) != 1 || found[0] != members[1] {
		t.Errorf("%+v", found)
	}
	if m := must[client.Member](s)(ada.ChangeRole(ctx, "acme", members[1].ID, client.RoleChange{Role: "editor"})); m.Role != "editor" {
		t.Errorf("%+v", m)
	}
	_, err = ada.RemoveMember(ctx, "acme", members[0].ID)
	s.mustRefuse("billing_user", err)
	if removed := must[bool](s)(ada.RemoveMember(ctx, "acme", members[1].ID)); !removed {
		t.Error("no member was removed")
	}
	_, err = bob.Suspension(ctx, "acme")
	s.mustRefuse("not_found", err)
}

func TestWorkspaceAdministration(t *testing.T) {
	s := newSite(t)
	ctx, ada := t.Context(), s.person("ada")
	must[client.WorkspaceCreated](s)(ada.CreateWorkspace(ctx, client.NewWorkspace{Slug: "acme", Name: "Acme"}))
	if tier := must[client.DefaultModel](s)(ada.SetDefaultModel(ctx, "acme", client.DefaultModel{Tier: "frontier"})); tier.Tier != "frontier" {
		t.Errorf("%+v", tier)
	}
	on := must[client.Suspension](s)(ada.SetSuspension(ctx, "acme", client.SuspensionChange{Suspended: true, Reason: "audit"}))
	if now := must[client.Suspension](s)(ada.Suspension(ctx, "acme")); now != on || now.SuspensionReason != "audit" {
		t.Errorf("%+v", now)
	}
	_, err := ada.WriteFile(ctx, "acme", "a.txt", strings.NewReader("a"))
	s.mustRefuse("workspace_suspended", err)
	must[client.Suspension](s)(ada.SetSuspension(ctx, "acme", client.SuspensionChange{}))
	rename := client.WorkspaceRename{Slug: "zenith", Name: "Zenith"}
	_, err = ada.RenameWorkspace(ctx, "acme", rename)
	s.mustRefuse("invalid_request", err)
	rename.PublicURLBreakAcknowledged = true
	must[client.WorkspaceRenamed](s)(ada.RenameWorkspace(ctx, "acme", rename))

	if anchors := all(s, ada.Anchors("zenith")); len(anchors) != 0 {
		t.Errorf("%+v", anchors)
	}
	must[bool](s)(ada.WriteFile(ctx, "zenith", "a", strings.NewReader("a")))
	_, err = ada.Reanchor(ctx, "zenith", "anc_none", client.NewAnchorPath{Path: "a"})
	s.mustRefuse("not_found", err)
	must[[]client.Sample](s)(ada.Telemetry(ctx, "zenith", 1))
	if answer := must[client.Reprovisioned](s)(ada.Reprovision(ctx, "zenith")); answer.Status != "backup_pending" && answer.Status != "provisioning" {
		t.Errorf("%+v", answer)
	}
	var events []string
	for _, e := range all(s, ada.Audit("zenith")) {
		events = append(events, e.Event)
	}
	for _, want := range []string{"workspace.renamed", "workspace.suspended", "default_model.changed", "workspace.created"} {
		if !slices.Contains(events, want) {
			t.Errorf("no %s in %v", want, events)
		}
	}
}

func TestFiles(t *testing.T) {
	s := newSite(t)
	ctx, ada := t.Context(), s.person("ada")
	must[client.WorkspaceCreated](s)(ada.CreateWorkspace(ctx, client.NewWorkspace{Slug: "acme", Name: "Acme"}))
	if err := ada.MakeFolder(ctx, "acme", "a b"); err != nil {
		t.Fatal(err)
	}
	const path = "a b/#1?.txt"
	for i, content := range []string{"one", "two"} {
		if created := must[bool](s)(ada.WriteFile(ctx, "acme", path, strings.NewReader(content))); created != (i == 0) {
			t.Errorf("write %d created: %v", i, created)
		}
	}
	file := must[io.ReadCloser](s)(ada.ReadFile(ctx, "acme", path))
	if content, err := io.ReadAll(file); err != nil || string(content) != "two" || file.Close() != nil {
		t.Errorf("%q, %v", content, err)
	}
	if err := ada.Delete(ctx, "acme", "a b"); err != nil {
		t.Fatal(err)
	}
	_, err := ada.ReadFile(ctx, "acme", path)
	s.mustRefuse("not_found", err)

	rows := all(s, ada.Feed("acme", client.FeedQuery{Reads: true}))
	var kinds []string
	for _, row := range rows {
		kinds = append(kinds, row.Event.Kind)
	}
	if got := strings.Join(kinds, " "); got != "create create write read delete" {
		t.Errorf("the feed: %s", got)
	}
	if history := all(s, ada.FileHistory("acme", path, false)); len(history) < 2 || history[0].Seq != 2 {
		t.Errorf("%+v", history)
	}
	if readers := all(s, ada.SeenBy("acme", path)); len(readers) != 1 || readers[0].ReadCount != 1 || readers[0].WriteCount != 2 {
		t.Errorf("%+v", readers)
	}
	if writers := must[[]client.Writer](s)(ada.LatestWriters(ctx, "acme", "a b", "#1?.txt", "other")); len(writers) != 1 || writers[0].Path != path {
		t.Errorf("%+v", writers)
	}

	cursor, got := "", 0
	for frame, err := range ada.Events(ctx, "acme", client.EventsQuery{Reads: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if frame.Row != rows[got] {
			t.Errorf("frame %d is %+v", got, frame)
		}
		if cursor, got = frame.Cursor, got+1; got == 3 {
			break
		}
	}
	var left []client.Row
	for row, err := range ada.Feed("acme", client.FeedQuery{Reads: true}).From(ctx, cursor) {
		if err != nil {
			t.Fatal(err)
		}
		left = append(left, row)
	}
	if !slices.Equal(left, rows[3:]) {
		t.Errorf("after the cursor of the stream: %+v", left)
	}
}

// TestPaging checks that the pages of any limit have each item once.
func TestPaging(t *testing.T) {
	s := newSite(t)
	ada := s.person("ada")
	for i := range 4 {
		must[client.APIKeyCreated](s)(ada.CreateAPIKey(t.Context(), client.NewAPIKey{Name: fmt.Sprint(i)}))
	}
	want := all(s, ada.APIKeys())
	for limit := 1; limit <= 6; limit++ {
		var got []client.APIKey
		for paging := (client.Paging{Limit: limit}); ; {
			page := must[client.Page[client.APIKey]](s)(ada.APIKeys().Page(t.Context(), paging))
			got = append(got, page.Items...)
			if page.NextCursor == nil {
				break
			}
			paging.Cursor = *page.NextCursor
		}
		if len(want) != 5 || !slices.EqualFunc(got, want, func(a, b client.APIKey) bool { return a.ID == b.ID }) {
			t.Errorf("in pages of %d: %+v", limit, got)
		}
	}
	_, err := ada.APIKeys().Page(t.Context(), client.Paging{Cursor: "edited"})
	s.mustRefuse("invalid_cursor", err)
}
