package actors

import (
	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// A dependent is a stream or a held query. It outlives the request that the owner has authorized, and ends when the owner would no
// longer authorize it.
type dependent interface {
	// authorization returns the authorization on which the dependent depends.
	authorization() authorization
	// hasEnded reports whether the dependent has ended. It is safe for concurrent use.
	hasEnded() bool
	// revoke ends the dependent. err is the refusal, or ErrRetry if only the role of the principal has changed.
	revoke(err error)
}

// An authorization is an access that an owner has granted to a principal, and the role of the principal at that time.
type authorization struct {
	principal *wirev1.Principal
	access    entity.Access
	role      workspacev1.Role
	// byRole is set if the dependent also depends on the role.
	byRole bool
}

// watch makes the actor of the owner end a held query when the access or the role of its sender changes.
type watch struct{ dependent dependent }

// minPruned is the least number of dependents at which ended dependents are removed.
const minPruned = 32

// addDependent remembers a dependent of an owned entity. It removes the ended dependents each time the number of dependents has doubled, and so
// does each sweep, so that the table does not grow with every stream that ever followed an entity without changes.
func (e *entityActor) addDependent(d dependent) {
	if e.dependents == nil {
		e.dependents = map[dependent]struct{}{}
	}
	e.dependents[d] = struct{}{}
	if len(e.dependents) >= max(e.pruneAt, minPruned) {
		e.forgetEndedDependents()
	}
}

func (e *entityActor) forgetEndedDependents() {
	for d := range e.dependents {
		if d.hasEnded() {
			delete(e.dependents, d)
		}
	}
	e.pruneAt = 2 * len(e.dependents)
}

// watch remembers a held query. The owner may have changed since it forwarded the query.
func (e *entityActor) watch(d dependent) {
	if e.own.ensureLoaded() != nil {
		d.revoke(ErrRetry)
		return
	}
	e.addDependent(d)
	e.reauthorize(d)
}

// reauthorizeDependents ends the dependents of principals that have lost their access, or have another role.
func (e *entityActor) reauthorizeDependents() {
	if len(e.dependents) == 0 || e.own.ensureLoaded() != nil {
		return // proposals are in flight after a failed one; the last outcome calls reauthorizeDependents again
	}
	for d := range e.dependents {
		e.reauthorize(d)
	}
}

func (e *entityActor) reauthorize(d dependent) {
	if d.hasEnded() {
		delete(e.dependents, d)
		return
	}
	a := d.authorization()
	if err := a.access.Authorize(a.principal, e.check(a.principal)); err != nil {
		if entity.IsRefusal(err) {
			d.revoke(err)
		}
		return
	}
	if a.byRole && e.roleOf(a.principal) != a.role {
		d.revoke(ErrRetry)
	}
}

// check returns a function that returns nil if a principal satisfies a need, according to the state with all decisions so far.
func (e *entityActor) check(p *wirev1.Principal) func(entity.Need) error {
	return func(need entity.Need) error { return e.own.machine.check(e.callOf(p), need) }
}

// roleOf returns the role of a principal in the entity, according to the state with all decisions so far, which must be loaded
// unless the principal is the platform.
func (e *entityActor) roleOf(p *wirev1.Principal) workspacev1.Role {
	if entity.IsPlatform(p) {
		return workspacev1.Role_ROLE_OWNER
	}
	m, ok := e.own.machine.(*ruled)
	if !ok || e.kind.Role == nil {
		return workspacev1.Role_ROLE_UNSPECIFIED
	}
	return e.kind.Role(e.callOf(p), m.state)
}

func (e *entityActor) callOf(p *wirev1.Principal) entity.Call {
	return entity.Call{Now: now(e.term.system.clock), Identity: e.identity, Principal: p}
}

// reader returns the call of a principal that reads a list or the timeline of the entity. The owner has authorized it with a
// role; an entity without an owner authorizes it here.
func (e *entityActor) reader(p *wirev1.Principal, access entity.Access, role workspacev1.Role) (entity.Call, error) {
	call := e.callOf(p)
	call.Role = role
	if e.kind.Owner != "" {
		return call, nil
	}
	if !entity.IsPlatform(p) {
		if err := e.own.ensureLoaded(); err != nil {
			return call, err
		}
		if err := access.Authorize(p, e.check(p)); err != nil {
			return call, err
		}
	}
	call.Role = e.roleOf(p)
	return call, nil
}
