package app

import (
	"bytes"
	"slices"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

var (
	errSecret       = entity.Errorf(entity.InvalidRequest, "secretSha256 is not a SHA-256 hash")
	errNoGeneration = entity.Errorf(entity.NotFound, "the app does not run this configuration")
	errNoScopes     = entity.Errorf(entity.InvalidRequest, "the configuration has no scopes, so that its process gets no key")
)

// issueKey replaces the key of the app by the key of a process that is about to start. Errors: not_found unless the app may run
// the generation, invalid_request if the generation has no scopes.
func issueKey(call entity.Call, s *appv1.App, c *appv1.IssueKey) ([]appv1.Event, error) {
	runtime := generation(s, c.GetGeneration())
	switch {
	case !entity.IsSHA256(c.GetSecretSha256()):
		return nil, errSecret
	case runtime == nil || !mayRun(s) || s.GetAsleep():
		return nil, errNoGeneration
	case len(runtime.GetApiScopes()) == 0:
		return nil, errNoScopes
	case bytes.Equal(s.GetKey().GetSecretSha256(), c.GetSecretSha256()) && equalScopes(s.GetKey().GetScopes(), runtime.GetApiScopes()):
		return nil, nil
	}
	key := &appv1.Key{Number: s.GetLastKey() + 1, SecretSha256: c.GetSecretSha256(), Scopes: runtime.GetApiScopes()}
	return []appv1.Event{&appv1.KeyIssued{
		Key: key, WorkspaceId: s.GetWorkspaceId(), AppId: s.GetId(), UserId: s.GetCreatedByUserId(), At: call.At(),
	}}, nil
}

// generation returns the configuration with a number if the app runs or tries it; nil if not.
func generation(s *appv1.App, number uint64) *appv1.Runtime {
	switch {
	case s.GetRuntimeStatus() == reconciling && number == s.GetGeneration():
		return s.GetRequested()
	case s.GetAccepted() != nil && number == s.GetAcceptedGeneration():
		return s.GetAccepted()
	default:
		return nil
	}
}

// ScopesOf returns the present scopes of an app: the scopes of its key, or of the next key while its process sleeps or starts
// again. An app that is disabled or being removed, or has no folder, has none. The suspension of an app with its workspace
// is temporary, and takes no scopes.
func ScopesOf(s *appv1.App) []string {
	switch {
	case !isEnabled(s):
		return nil
	case s.GetKey() != nil:
		return s.GetKey().GetScopes()
	default:
		return s.GetAccepted().GetApiScopes()
	}
}

// mayInvite reports whether the app has the scope to invite people. The invitations that the app has sent end when it loses
// that scope, whether a configuration takes it away or the app loses its key for good.
func mayInvite(s *appv1.App) bool { return slices.Contains(ScopesOf(s), entity.Members) }

// revokeKey returns the event that ends the key of the app, or nothing if it has none.
func revokeKey(call entity.Call, s *appv1.App) []appv1.Event {
	if s.GetKey() == nil {
		return nil
	}
	return []appv1.Event{&appv1.KeyRevoked{Number: s.GetKey().GetNumber(), AppId: s.GetId(), At: call.At()}}
}

// thenRevokeKey returns an event after which the app may not run, and the end of its key.
func thenRevokeKey(call entity.Call, s *appv1.App, e appv1.Event) []appv1.Event {
	return append([]appv1.Event{e}, revokeKey(call, s)...)
}
