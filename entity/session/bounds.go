package session

import (
	"slices"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Bounds decide what the agent may do in a turn:
//
//   - An input has the bounds that its credential grants (boundsOf). A person's own credential, and an input that was recorded before
//     bounds were, has none: the role of the person behind the session alone limits it. Nobody can say later what the credential of
//     such an input had granted.
//   - A turn has the bounds of the input that starts it. An input joins a running turn only if it has the same bounds (MayJoin).
//     Any other one waits for the end of the turn, and starts a turn of its own. So no input does more than its credential grants,
//     and none takes anything from the work of another one. A note joins any turn: it gives the agent no
//     capability, and could otherwise wait for ever, because it starts no turn.
//   - A turn that begins while the session asks or sleeps goes on with the work of the turn that asks or sleeps, and has only what the
//     bounds of both have (draft.startNext). An input of the system has the bounds of the turn that it continues.
//   - The agent's own credential has the bounds of the turn. The inputs that it sends to other sessions, and its children, have the same.

// boundsOf returns the bounds of the inputs of a principal; nil if its credential has all capabilities of its person that an agent can
// have.
func boundsOf(p *wirev1.Principal) *sessionv1.Bounds {
	switch p.GetKind() {
	case wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, wirev1.CredentialKind_CREDENTIAL_KIND_APP,
		wirev1.CredentialKind_CREDENTIAL_KIND_SESSION:
	default:
		return nil
	}
	granted := &sessionv1.Bounds{}
	for _, c := range entity.AgentCapabilities() {
		if slices.Contains(p.GetGrants(), c) {
			granted.Capabilities = append(granted.GetCapabilities(), c)
		}
	}
	if len(granted.GetCapabilities()) == len(entity.AgentCapabilities()) {
		return nil
	}
	return granted
}

// Granted returns the capabilities within bounds that an agent can have, sorted. The caller must not change the slice.
func Granted(b *sessionv1.Bounds) []string {
	if b == nil {
		return entity.AgentCapabilities()
	}
	return b.GetCapabilities()
}

// intersect returns the bounds that lie within both.
func intersect(a, b *sessionv1.Bounds) *sessionv1.Bounds {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	both := &sessionv1.Bounds{}
	for _, c := range a.GetCapabilities() {
		if slices.Contains(b.GetCapabilities(), c) {
			both.Capabilities = append(both.GetCapabilities(), c)
		}
	}
	return both
}

// EqualBounds reports whether bounds are the same.
func EqualBounds(a, b *sessionv1.Bounds) bool {
	return (a == nil) == (b == nil) && slices.Equal(a.GetCapabilities(), b.GetCapabilities())
}

// MayJoin reports whether an input that waits may join a turn: a note, or an input with the same bounds, so that what either may do the
// other may do.
func MayJoin(t *sessionv1.Turn, p *sessionv1.Pending) bool {
	return p.GetKind() == sessionv1.InputKind_INPUT_KIND_NOTE || EqualBounds(t.GetBounds(), p.GetBounds())
}

// SteersTurn reports whether an input that waits is for the running turn.
func SteersTurn(t *sessionv1.Turn, p *sessionv1.Pending) bool { return Steers(p) && MayJoin(t, p) }
