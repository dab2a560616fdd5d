package session

import (
	"slices"

	"github.com/atelier-run/atelier/entity"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Bounds decide what the agent may do in a turn:
//
//   - An input has the bounds that its credential grants (boundsOf). An input of a person's own credential without limits has no bounds: only the role
//     of the person limits it. So does an input that was recorded before bounds were, because the journal does not have the grants of
//     its credential.
//   - A turn has the bounds of the input that starts it. An input with the same bounds joins a running turn (MayJoin). An input with
//     other bounds waits until the turn has ended, and starts its own turn. Therefore no input does more than its credential grants,
//     and no input narrows a turn that another input has started. A note joins any turn: it gives the agent no capability, and starts no
//     turn that it could wait for.
//   - A turn that begins while the session asks or sleeps continues the turn that asks or sleeps. It has the capabilities that the
//     bounds of both turns have (draft.startNext). An input of the system has the bounds of the turn that it continues.
//   - The agent's credential has the bounds of its turn, and so have the inputs that the agent sends to other sessions, and its children.
//
// Four words for rights: a credential has grants; a turn has bounds within the grants; within the bounds and the role of the person, the
// agent has capabilities. A limit is a number, as of tokens.

// boundsOf returns the bounds of the inputs of a principal: the capabilities of an editor, which are all that an agent can have, as far as
// the credential of the principal grants them. It returns nil if the credential grants them all.
func boundsOf(p *wirev1.Principal) *sessionv1.Bounds {
	granted := entity.Capabilities(p, workspacev1.Role_ROLE_EDITOR)
	if len(granted) == len(entity.AgentCapabilities()) {
		return nil
	}
	return &sessionv1.Bounds{Capabilities: granted}
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

// MayJoin reports whether an input that waits may join a turn: a note, or an input with the same bounds, so that neither may do more
// than the other.
func MayJoin(t *sessionv1.Turn, p *sessionv1.Pending) bool {
	return p.GetKind() == sessionv1.InputKind_INPUT_KIND_NOTE || EqualBounds(t.GetBounds(), p.GetBounds())
}

// SteersTurn reports whether an input that waits is for the running turn.
func SteersTurn(t *sessionv1.Turn, p *sessionv1.Pending) bool { return Steers(p) && MayJoin(t, p) }
