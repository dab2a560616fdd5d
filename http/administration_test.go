package http_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	computerv1 "github.com/atelier-run/atelier/messages/computer/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// stub makes the entities answer messages of one type with reply.
func stub[M proto.Message](w *fakeEntities, reply func(entity.Command, M) (proto.Message, error)) {
	before := w.before
	w.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
		if m, ok := c.Message.(M); ok {
			return reply(c, m)
		}
		if before != nil {
			return before(ctx, c)
		}
		return nil, nil
	}
}

// stubLists makes the entities answer every list with the given rows, and records the requests.
func stubLists(t *testing.T, w *fakeEntities, next string, rows ...proto.Message) *[]*wirev1.List {
	asked := &[]*wirev1.List{}
	stub(w, func(_ entity.Command, l *wirev1.List) (proto.Message, error) {
		*asked = append(*asked, l)
		page := &wirev1.Page{Next: []byte(next)}
		for _, row := range rows {
			bytes, err := proto.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			page.Rows = append(page.Rows, bytes)
		}
		return page, nil
	})
	return asked
}

func TestReprovisionAnswers(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	for _, test := range []struct {
		unreadable error
		answer     *computerv1.Reprovisioned
		want       string
	}{
		{nil, &computerv1.Reprovisioned{Status: "backup_pending", BackupId: "bkp_01j0000000000000000000000b"},
			`{"status":"backup_pending","workspaceId":"` + acme + `","backupId":"bkp_01j0000000000000000000000b"}`},
		{errors.New("no disk"), &computerv1.Reprovisioned{Status: "provisioning", Scheduled: true, OldVmName: "vm-1", ImageRef: "local"},
			`{"status":"provisioning","workspaceId":"` + acme + `","scheduled":true,"oldVmName":"vm-1","imageRef":"local"}`},
		{nil, &computerv1.Reprovisioned{Status: "provisioning"},
			`{"status":"provisioning","workspaceId":"` + acme + `","scheduled":false}`},
		{nil, &computerv1.Reprovisioned{Status: "deferred", ActiveSessions: 3},
			`{"status":"deferred","reason":"active_workspace_work","activeAgentSessions":3,"activeTrainJobs":0}`},
		{nil, &computerv1.Reprovisioned{Status: "exploded"}, `{"error":"internal",`},
	} {
		w.exists = func(id, path string) (bool, error) {
			if id != acme || path != "" {
				t.Errorf("looked for %q of %s", path, id)
			}
			return true, test.unreadable
		}
		w.before = nil
		stub(w, func(c entity.Command, m *computerv1.Reprovision) (proto.Message, error) {
			if m.GetDriveReadable() != (test.unreadable == nil) || !strings.HasPrefix(m.GetBackupId(), "bkp_") || c.Principal.GetUserId() != alice {
				t.Errorf("asked with %v as %v", m, c.Principal)
			}
			return test.answer, nil
		})
		got := request(t, s, "POST", "/v1/ws/acme/reprovision", key, "")
		if !strings.HasPrefix(got.Body.String(), test.want) {
			t.Errorf("%s, want %s", got.Body, test.want)
		}
	}
}

func TestAnchorSettings(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	for settings, want := range map[string]string{
		"": "null", "null": "null", `{"a": [1, 2.50, "é"]}`: `{"a":[1,2.50,"é"]}`, `"x"`: `"x"`, "12345678901234567890": "12345678901234567890",
		"false": "false", `{"a":1,"a":2}`: "null", "nonsense": "null", "\xff": "null",
	} {
		w.before = nil
		stubLists(t, w, "", &workspacev1.Anchor{
			Id: "anc_01j0000000000000000000000a", Path: "a", Kind: workspacev1.AnchorKind_ANCHOR_KIND_SHARE_MOUNT,
			State: workspacev1.AnchorState_ANCHOR_STATE_ORPHANED, Settings: []byte(settings), CreatedAt: 1, UpdatedAt: 2,
		})
		got := request(t, s, "GET", "/v1/ws/acme/anchors", key, "")
		expect(t, got, 200, `{"items":[{"id":"anc_01j0000000000000000000000a","workspaceId":"`+acme+`","path":"a","kind":"share-mount","settings":`+
			want+`,"state":"orphaned","createdAt":1,"updatedAt":2}],"nextCursor":null}`)
	}
}

// unset are the fields that no event sets: they exist in stored history, and the API does not show them.
var unset = []string{"image_version", "new_billing_user_id", "old_billing_user_id", "app_id", "app_slug", "session_id"}

// TestProvenance sets each field of an audit row alone, and expects it alone under its name in JSON.
func TestProvenance(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	values := map[string]string{"tier": "economy", "kind": "folder", "role": "viewer", "old_role": "owner", "mode": "read", "visibility": "public"}
	fields := (&auditv1.Provenance{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		p := &auditv1.Provenance{}
		m := p.ProtoReflect()
		var want any
		if slices.Contains(unset, string(field.Name())) {
			continue
		}
		switch {
		case field.IsList():
			m.Mutable(field).List().Append(protoreflect.ValueOfString("x"))
			want = []any{"x"}
		case field.Kind() == protoreflect.BoolKind:
			m.Set(field, protoreflect.ValueOfBool(true))
			want = true
		case field.Kind() == protoreflect.Int64Kind:
			m.Set(field, protoreflect.ValueOfInt64(7))
			want = 7.0
		default:
			text := "x"
			if value := values[string(field.Name())]; value != "" {
				text = value
			}
			m.Set(field, protoreflect.ValueOfString(text))
			want = text
		}
		w.before = nil
		stubLists(t, w, "", &auditv1.Event{Id: "aud_01j0000000000000000000000a", Event: "a.b", ActorId: "system", At: 1, Provenance: p})
		var page struct {
			Items []struct{ Provenance map[string]any }
		}
		got := request(t, s, "GET", "/v1/ws/acme/audit", key, "")
		if err := json.Unmarshal(got.Body.Bytes(), &page); err != nil || len(page.Items) != 1 {
			t.Fatalf("%v: %s", err, got.Body)
		}
		if shown := page.Items[0].Provenance; len(shown) != 1 || fmt.Sprint(shown[field.JSONName()]) != fmt.Sprint(want) {
			t.Errorf("%s is shown as %v", field.Name(), shown)
		}
	}
	for _, empty := range []*auditv1.Provenance{nil, {}} {
		w.before = nil
		stubLists(t, w, "", &auditv1.Event{Id: "aud_01j0000000000000000000000a", Event: "a.b", ActorId: "system", At: 1, Provenance: empty})
		expect(t, request(t, s, "GET", "/v1/ws/acme/audit", key, ""), 200,
			`{"items":[{"id":"aud_01j0000000000000000000000a","event":"a.b","actorId":"system","at":1}],"nextCursor":null}`)
	}
}

// TestPages compares the parameters of a request with the parameters of the query to the entity, for every list of a workspace.
func TestPages(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	next := "\x00\xff\"<place>\n"
	asked := stubLists(t, w, next)
	for _, list := range []struct{ path, name string }{
		{"members", "members"}, {"invites", "invitations"}, {"invite-deliveries", "invitations"}, {"anchors", "anchors"}, {"audit", "audit"},
	} {
		target := "/v1/ws/acme/" + list.path
		cursors := map[string]bool{}
		for _, query := range []string{"?", "?limit=100", "?limit=1"} {
			var page struct{ NextCursor string }
			got := request(t, s, "GET", target+query, key, "")
			if err := json.Unmarshal(got.Body.Bytes(), &page); err != nil || page.NextCursor == "" {
				t.Fatalf("%v: %s", err, got.Body)
			}
			cursors[page.NextCursor] = true
		}
		if len(cursors) != 1 {
			t.Errorf("%s: %d cursors of one place", target, len(cursors))
		}
		cursor := slices.Collect(maps.Keys(cursors))[0]
		expect(t, request(t, s, "GET", target+"?limit=7&cursor="+cursor, key, ""), 200, `{"items":[],"nextCursor":"`)
		last := (*asked)[len(*asked)-1]
		if last.GetName() != list.name || last.GetLimit() != 7 || string(last.GetAfter()) != next || last.GetSearch() != "" {
			t.Errorf("%s asked for %v", target, last)
		}
		if first := (*asked)[len(*asked)-4]; first.GetLimit() != 50 || len(first.GetAfter()) != 0 {
			t.Errorf("%s asked at first for %v", target, first)
		}
		for _, other := range []string{"members", "invites", "invite-deliveries", "anchors", "audit"} {
			got := request(t, s, "GET", "/v1/ws/acme/"+other+"?cursor="+cursor, key, "")
			if own := other == list.path; (got.Code == 200) != own || !own && got.Body.String() != `{"error":"invalid_cursor"}` {
				t.Errorf("a cursor of %s on %s: %d %s", list.path, other, got.Code, got.Body)
			}
		}
		edited := "A" + cursor[1:]
		if edited != cursor {
			expect(t, request(t, s, "GET", target+"?cursor="+edited, key, ""), 400, `{"error":"invalid_cursor"}`)
		}
	}
	expect(t, request(t, s, "GET", "/v1/ws/acme/members?search=A%20b", key, ""), 200, "")
	if last := (*asked)[len(*asked)-1]; last.GetSearch() != "A b" {
		t.Errorf("searched for %q", last.GetSearch())
	}
}

// TestRefusedRename covers the outcomes of a claim that the workspace accepts, refuses, or that a later claim has replaced.
func TestRefusedRename(t *testing.T) {
	const (
		body    = `{"slug":"apex","publicUrlBreakAcknowledged":true,"name":"Apex"}`
		renamed = `{"ok":true,"breaksPublicUrls":true}`
	)
	refused := func(id string) *slugv1.Slug { return &slugv1.Slug{ClaimId: id, RefusedClaimId: id} }
	for name, test := range map[string]struct {
		state  func(claim string) *slugv1.Slug
		denied *entity.Error
		status int
		want   string
	}{
		"accepted": {func(id string) *slugv1.Slug { return &slugv1.Slug{WorkspaceId: acme, ClaimId: id} }, nil, 200, renamed},
		"accepted, then released by another rename": {
			func(id string) *slugv1.Slug {
				return &slugv1.Slug{ReservedFor: acme, ClaimId: id, RefusedClaimId: "cmd_0"}
			},
			entity.Errorf(entity.Forbidden, "no more"), 200, renamed,
		},
		"refused":                                {refused, entity.Errorf(entity.Forbidden, "no more"), 403, `{"error":"forbidden","message":"no more"}`},
		"refused because suspended":              {refused, entity.Errorf(entity.WorkspaceSuspended, "now"), 403, `{"error":"workspace_suspended","message":"now"}`},
		"refused, but the caller has access now": {refused, nil, 503, `{"error":"unavailable"`},
		"replaced by a later claim":              {func(string) *slugv1.Slug { return &slugv1.Slug{WorkspaceId: acme, ClaimId: "cmd_9"} }, nil, 503, `{"error":"unavailable"`},
	} {
		w := newFakeEntities()
		s, key := w.server(t), w.key(alice)
		claim := ""
		stub(w, func(c entity.Command, m *slugv1.ClaimSlug) (proto.Message, error) {
			rename := m.GetRename()
			claim = rename.GetId()
			if !entity.IsPlatform(c.Principal) || c.Identity != "apex" || m.GetWorkspaceId() != acme || rename.GetName() != "Apex" ||
				rename.GetPrincipal().GetUserId() != alice || claim == "" {
				t.Errorf("%s: claimed with %v", name, m)
			}
			return &slugv1.Slug{}, nil
		})
		stub(w, func(c entity.Command, _ *slugv1.ResolveSlug) (proto.Message, error) {
			if c.Identity == "apex" {
				return test.state(claim), nil
			}
			return nil, nil
		})
		stub(w, func(entity.Command, *workspacev1.DescribeWorkspace) (proto.Message, error) {
			return &workspacev1.Description{Workspace: &workspacev1.Workspace{Id: acme, Slug: "acme"}}, nil
		})
		stub(w, func(entity.Command, *workspacev1.Authorize) (proto.Message, error) {
			if claim != "" && test.denied != nil {
				return nil, test.denied
			}
			return nil, nil
		})
		expect(t, request(t, s, "PATCH", "/v1/workspaces/acme", key, body), test.status, test.want)
	}
}

type letters []string

func (l *letters) Send(_ context.Context, to, _, text string) error {
	*l = append(*l, to+" "+text)
	return nil
}

func TestInvitationIsMailedAndNotReturned(t *testing.T) {
	w, sent := newFakeEntities(), &letters{}
	s, key := w.server(t, func(o *http.Options) { o.Mail = sent }), w.key(alice)
	stub(w, func(_ entity.Command, m *workspacev1.Invite) (proto.Message, error) {
		if len(m.GetSecretSha256()) != 32 || m.GetInviter().GetEmail() != "alice@example.com" || m.GetInviter().GetUserId() != alice || m.GetMailId() == "" {
			t.Errorf("invited with %v", m)
		}
		return &workspacev1.Invited{Renewed: true, Invitation: &workspacev1.Invitation{
			Id: "inv_01j0000000000000000000000a", Email: m.GetEmail(), Role: m.GetRole(), ExpiresAt: 7,
		}}, nil
	})
	got := request(t, s, "POST", "/v1/ws/acme/invites", key, `{"email":"Bob@Example.com","role":"viewer"}`)
	expect(t, got, 200, `{"id":"inv_01j0000000000000000000000a","email":"bob@example.com","role":"viewer","expiresAt":7}`)
	if link := got.Header().Get("Link"); link != "" || len(*sent) != 0 {
		t.Errorf("%q was returned, and %q was sent during the request", link, *sent)
	}
}

// TestWhoamiOfWorkspaces checks the view of a workspace in each of its states.
func TestWhoamiOfWorkspaces(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	for name, test := range map[string]struct {
		edit func(*workspacev1.Workspace)
		want string
	}{
		"provisioning": {func(w *workspacev1.Workspace) { w.Status = workspacev1.Status_STATUS_PROVISIONING }, `"status":"provisioning","servicingStatus":"active","role"`},
		"unhealthy":    {func(w *workspacev1.Workspace) { w.Status = workspacev1.Status_STATUS_UNHEALTHY }, `"status":"unhealthy"`},
		"archived":     {func(w *workspacev1.Workspace) { w.Status = workspacev1.Status_STATUS_ARCHIVED }, `"status":"archived"`},
		"retired":      {func(w *workspacev1.Workspace) { w.Status = workspacev1.Status_STATUS_RETIRED }, `"status":"retired"`},
		"deleted":      {func(w *workspacev1.Workspace) { w.Status = workspacev1.Status_STATUS_DELETED }, `"workspaces":[],"scopes":["api_key","human"]`},
		"paused": {func(w *workspacev1.Workspace) {
			w.Suspension, w.ServicingChangedAt = &workspacev1.Suspension{At: 5, Reason: "mine"}, 5
		}, `"servicingStatus":"paused","servicingStatusChangedAt":5,"role"`},
		"banned": {func(w *workspacev1.Workspace) {
			w.Suspension, w.ServicingChangedAt = &workspacev1.Suspension{At: 5, Reason: "unpaid", ByOperator: true}, 5
		}, `"defaultTier":{"effective":"balanced"},"adminMessage":"unpaid"}`},
		"tier": {func(w *workspacev1.Workspace) { w.DefaultTier = workspacev1.Tier_TIER_OPENAI_MAX }, `"defaultTier":{"effective":"openai-max","configured":"openai-max"}}`},
	} {
		w.before = nil
		stub(w, func(entity.Command, *workspacev1.DescribeWorkspace) (proto.Message, error) {
			shown := &workspacev1.Workspace{Id: acme, Slug: "acme", Name: "Acme", BillingUserId: alice, Status: workspacev1.Status_STATUS_ACTIVE}
			test.edit(shown)
			return &workspacev1.Description{Workspace: shown, Role: workspacev1.Role_ROLE_EDITOR, Capabilities: []string{"apps"}}, nil
		})
		got := request(t, s, "GET", "/v1/whoami", key, "")
		if got.Code != 200 || !strings.Contains(got.Body.String(), test.want) {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
	}
}

// TestMachinesHaveALimit checks that a claimed device is released if the account refuses the machine.
func TestMachinesHaveALimit(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	var claimed *devicev1.ClaimDevice
	var released *devicev1.ReleaseDevice
	stub(w, func(c entity.Command, m *devicev1.ClaimDevice) (proto.Message, error) {
		claimed = m
		return &devicev1.Device{SyncDeviceId: c.Identity, UserId: m.GetUserId(), MachineId: m.GetMachineId()}, nil
	})
	stub(w, func(c entity.Command, m *devicev1.ReleaseDevice) (proto.Message, error) {
		released = m
		return &devicev1.Device{SyncDeviceId: c.Identity}, nil
	})
	refusal := entity.Errorf(entity.LimitReached, "enough")
	stub(w, func(entity.Command, *userv1.RegisterMachine) (proto.Message, error) { return nil, refusal })
	const body = `{"name":"laptop","syncDeviceId":"ABCDEFG"}`
	expect(t, request(t, s, "POST", "/v1/user/sync-machines", key, body), 409, `{"error":"limit_reached","message":"enough"}`)
	if released.GetMachineId() != claimed.GetMachineId() || released.GetUserId() != alice {
		t.Errorf("claimed %v, released %v", claimed, released)
	}
	refusal, released = entity.Errorf(entity.Unavailable, "later"), nil
	expect(t, request(t, s, "POST", "/v1/user/sync-machines", key, body), 503, "")
	if released != nil {
		t.Errorf("released %v while it may still be registered", released)
	}
}

// TestReceivedInvitations lists many invitations. Few of them are pending.
func TestReceivedInvitations(t *testing.T) {
	w := newFakeEntities()
	s, key := w.server(t), w.key(alice)
	sent := map[string]string{}
	id := func(i int) string { return fmt.Sprintf("inv_01j%023d", i) }
	for i := range 450 {
		sent[id(i)] = acme
	}
	stub(w, func(c entity.Command, _ *emailv1.ResolveEmail) (proto.Message, error) {
		if c.Identity != "alice@example.com" {
			t.Errorf("asked for the invitations of %s", c.Identity)
		}
		return &emailv1.Email{Address: c.Identity, Invitations: sent}, nil
	})
	stub(w, func(_ entity.Command, m *workspacev1.DescribeInvitation) (proto.Message, error) {
		i := &workspacev1.Invitation{Id: m.GetInvitationId(), Role: workspacev1.Role_ROLE_EDITOR, ExpiresAt: 1 << 50}
		switch number := strings.TrimLeft(m.GetInvitationId()[7:], "0"); {
		case number == "7", number == "420", number == "449":
		case len(number) == 1:
			i.RevokedAt = 1
		case len(number) == 2:
			i.ConsumedAt = 1
		case strings.HasSuffix(number, "0"):
			return nil, entity.Errorf(entity.NotFound, "forgotten")
		default:
			i.ExpiresAt = 1
		}
		return i, nil
	})
	var found []string
	pages, cursor := 0, ""
	for target := "/v1/user/invitations?limit=2"; ; target = "/v1/user/invitations?limit=2&cursor=" + cursor {
		var page struct {
			Items      []struct{ ID string }
			NextCursor *string
		}
		got := request(t, s, "GET", target, key, "")
		if err := json.Unmarshal(got.Body.Bytes(), &page); err != nil || got.Code != 200 || len(page.Items) > 2 {
			t.Fatalf("%v: %d %s", err, got.Code, got.Body)
		}
		for _, item := range page.Items {
			found = append(found, item.ID)
		}
		if pages++; page.NextCursor == nil {
			break
		}
		cursor = *page.NextCursor
	}
	if want := []string{id(7), id(420), id(449)}; !slices.Equal(found, want) || pages != 3 {
		t.Errorf("%v in %d pages, want %v in 3", found, pages, want)
	}
}

// The error about a path comes only after the anchor was found.
func TestReanchorChecksThePathLast(t *testing.T) {
	s := newStage(t)
	s.person("alice")
	s.ask(s.node.Server, s.keys["alice"], "POST", "/v1/workspaces", `{"slug":"acme","name":"Acme"}`, 201, nil)
	s.ask(s.node.Server, s.keys["alice"], "POST", "/v1/ws/acme/anchors/anc_01j0000000000000000000000a/reanchor", `{"path":"nowhere"}`, 404, nil)
}
