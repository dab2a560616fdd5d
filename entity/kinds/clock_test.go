package kinds_test

import (
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/credential"
	"github.com/atelier-run/atelier/entity/grant"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/entity/visit"
	"github.com/atelier-run/atelier/entity/workspace"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	visitv1 "github.com/atelier-run/atelier/messages/visit/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// TestGrantsAreAbsolute verifies that a grant until a time lasts exactly until that time, whatever the clock was when it was made
// (docs/operations.md, section Clocks). Keys, browser sessions and impersonations are credentials.
func TestGrantsAreAbsolute(t *testing.T) {
	const year = 365 * 24 * time.Hour
	hash := make([]byte, 32)
	now := time.UnixMilli(1_800_000_000_000)
	for name, lasts := range map[string]func(expiresAt, at int64) bool{
		"credential": func(expiresAt, at int64) bool {
			return credential.IsUsable(&credentialv1.Credential{SecretSha256: hash, ExpiresAt: expiresAt}, at)
		},
		"OAuth token": func(expiresAt, at int64) bool {
			return grant.IsUsable(&grantv1.Grant{Access: []*grantv1.Token{{ExpiresAt: expiresAt}}}, at)
		},
		"consent": func(expiresAt, at int64) bool {
			s := &grantv1.Grant{UserId: "usr_1", CodeUsedAt: 1, Refresh: &grantv1.Token{ExpiresAt: expiresAt}}
			return grant.EndedAt(s, 1, at) == 0
		},
		"link": func(expiresAt, at int64) bool {
			return user.LinkOpens(&userv1.OneTimeLink{SecretSha256: hash, ExpiresAt: expiresAt}, hash, at)
		},
		"visit": func(expiresAt, at int64) bool {
			return visit.IsOpen(&visitv1.Visit{RedeemedAt: 1, ExpiresAt: expiresAt}, at)
		},
		"invitation": func(expiresAt, at int64) bool {
			return workspace.Pending(at, &workspacev1.Invitation{ExpiresAt: expiresAt})
		},
		"reservation of a slug": func(expiresAt, at int64) bool {
			reserved := slug.Evolve(
				slug.Evolve(slug.Zero("acme"), &slugv1.SlugClaimed{Slug: "acme", WorkspaceId: "ws_1"}),
				&slugv1.SlugReleased{WorkspaceId: "ws_1", ReservedUntil: expiresAt},
			)
			claim := &slugv1.ClaimSlug{WorkspaceId: "ws_2", WorkspaceName: "Other", CreatorId: "usr_1"}
			_, err := slug.Decide(entity.Call{Now: time.UnixMilli(at), Identity: "acme"}, reserved, claim)
			return err != nil
		},
	} {
		for _, ahead := range []time.Duration{year, 0, -year} {
			expiresAt := now.Add(ahead + time.Hour).UnixMilli()
			if want := ahead >= 0; lasts(expiresAt, now.UnixMilli()) != want {
				t.Errorf("%s given %v ahead: lasts at the right time: %t", name, ahead, !want)
			}
			if !lasts(expiresAt, expiresAt-1) || lasts(expiresAt, expiresAt) {
				t.Errorf("%s given %v ahead: does not end at its time", name, ahead)
			}
		}
	}
}
