package audit_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

func TestIDIsAULIDOfTheEventTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stream, version := rapid.String().Draw(t, "stream"), rapid.Uint64().Draw(t, "version")
		at := rapid.Int64Range(0, 1<<48-1).Draw(t, "at")
		id := audit.ID(stream, version, at)
		text, found := strings.CutPrefix(id, "aud_")
		parsed, err := ulid.ParseStrict(text)
		if !found || err != nil || strings.ToLower(text) != text || parsed.Time() != uint64(at) {
			t.Fatalf("%s of %d: %v", id, at, err)
		}
		if strings.ToLower(parsed.String()) != text {
			t.Fatalf("%s is read as %s", text, parsed)
		}
		for name, other := range map[string]string{
			"version": audit.ID(stream, version+1, at), "stream": audit.ID(stream+"x", version, at),
		} {
			if entropy := ulid.MustParse(strings.TrimPrefix(other, "aud_")).Entropy(); bytes.Equal(entropy, parsed.Entropy()) {
				t.Fatalf("another %s, the same id %s", name, id)
			}
		}
		if audit.ID(stream, version, at) != id {
			t.Fatal("another id for the same event")
		}
	})
}

// TestRowsAreNewestFirst checks the order of keys: the newest row first, and of rows of one time the latest version first.
func TestRowsAreNewestFirst(t *testing.T) {
	row := func(kind string, version uint64, index int, at int64) entity.Row {
		call := entity.Call{Now: time.UnixMilli(at), Identity: "ws_1", Version: version, Principal: entity.Platform()}
		return audit.NewRow(kind, call, index, audit.NewEvent(call, "backup.created", nil))
	}
	ordered := []entity.Row{
		row("workspace", 1, 0, 1002), row("workspace", 9, 1, 1001), row("workspace", 9, 0, 1001), row("computer", 8, 0, 1001),
		row("workspace", 8, 0, 1001), row("computer", 300, 0, 1000),
	}
	ids := map[string]bool{}
	for i, r := range ordered {
		if i > 0 && ordered[i-1].Key >= r.Key {
			t.Errorf("row %d is not after the one before", i)
		}
		ids[r.Message.(*auditv1.Event).GetId()] = true
		if r.List != "audit" {
			t.Errorf("list %q", r.List)
		}
	}
	if len(ids) != len(ordered) {
		t.Errorf("%d ids of %d rows", len(ids), len(ordered))
	}
}

func TestActor(t *testing.T) {
	given := &auditv1.Provenance{Reason: "rent"}
	for name, test := range map[string]struct {
		who        *wirev1.Principal
		actor      string
		provenance *auditv1.Provenance
	}{
		"platform": {entity.Platform(), "system", given},
		"nobody":   {nil, "system", given},
		"computer": {&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM, WorkspaceId: "ws_1"}, "system", given},
		"person":   {&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_1"}, "usr_1", given},
		"impersonation": {
			&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION, UserId: "usr_1", ImpersonatorId: "usr_2"},
			"usr_1", &auditv1.Provenance{Reason: "rent", Actor: "usr_2"},
		},
		"browser": {&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION, UserId: "usr_1"}, "usr_1", given},
		"app": {
			&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_APP, UserId: "usr_1", CredentialId: "app_1"},
			"usr_1", &auditv1.Provenance{Reason: "rent", Actor: "api-key:app_1"},
		},
		"OAuth grant": {
			&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, UserId: "usr_1", CredentialId: "ogr_1"},
			"usr_1", &auditv1.Provenance{Reason: "rent", Actor: "api-key:ogr_1"},
		},
		"limited key": {
			&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY, UserId: "usr_1", CredentialId: "key_1"},
			"usr_1", &auditv1.Provenance{Reason: "rent", Actor: "api-key:key_1"},
		},
		"agent": {
			&wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_SESSION, UserId: "usr_1", CredentialId: "ses_1"},
			"usr_1", &auditv1.Provenance{Reason: "rent", Actor: "session:ses_1"},
		},
	} {
		call := entity.Call{Now: time.UnixMilli(7), Principal: test.who}
		want := &auditv1.Event{Event: "workspace.suspended", ActorId: test.actor, At: 7, Provenance: test.provenance}
		if e := audit.NewEvent(call, "workspace.suspended", given); !proto.Equal(e, want) {
			t.Errorf("%s: %v, want %v", name, e, want)
		}
	}
	if given.GetActor() != "" {
		t.Error("the argument was changed")
	}
}
