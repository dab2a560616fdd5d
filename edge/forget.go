package edge

import (
	"sync"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// A Change names the entities that have changed. An empty field names no entity.
type Change struct {
	// AppID is the id of an app that has changed, or that has a changed domain.
	AppID string
	// WorkspaceID is the id of a workspace after a change of its name, members or suspension. WorkspaceSlug is a slug that was claimed or
	// released.
	WorkspaceID, WorkspaceSlug string
	// CredentialID is the id of a credential or grant that has lost access. UserID is the id of an account that has lost access.
	CredentialID, UserID string
}

// ChangeOf returns the change that exposed events of an entity make (package entity/kinds).
func ChangeOf(kind, identity string) (c Change) {
	switch kind {
	case entity.KindApp:
		_, c.AppID = app.SplitIdentity(identity)
	case entity.KindSlug:
		c.WorkspaceSlug = identity
	case entity.KindWorkspace:
		c.WorkspaceID = identity
	case entity.KindCredential, entity.KindGrant:
		c.CredentialID = identity
	case entity.KindUser:
		c.UserID = identity
	}
	return c
}

// concernsTarget reports whether the change may concern the app of a target, its workspace, or the slug of the workspace.
func (c Change) concernsTarget(t *target) bool {
	return named(c.AppID, t.appID) || named(c.WorkspaceID, t.workspaceID) || named(c.WorkspaceSlug, t.workspaceSlug)
}

// concernsVisitor reports whether the change may concern the access of a principal to a workspace.
func (c Change) concernsVisitor(p *wirev1.Principal, workspaceID string) bool {
	return named(c.WorkspaceID, workspaceID) || named(c.CredentialID, p.GetCredentialId()) ||
		named(c.UserID, p.GetUserId()) || named(c.UserID, p.GetImpersonatorId())
}

// named reports whether a field names an id.
func named(field, id string) bool { return field != "" && field == id }

// Forget removes the cached answers that a change concerns. The caller calls Forget after the change is durable: requests that begin
// afterwards see the change, and running requests that have lost their access end at once. On the other members, where Forget is not called,
// both take up to a second. Forget does not wait for the requests to end.
func (e *Edge) Forget(c Change) {
	if c.AppID != "" || c.WorkspaceID != "" || c.WorkspaceSlug != "" {
		e.hosts.InvalidateAll(c.concernsTarget)
	}
	if c.WorkspaceID != "" || c.CredentialID != "" || c.UserID != "" {
		e.visits.InvalidateAll(func(a *access) bool { return c.concernsVisitor(a.visit.GetPrincipal(), a.visit.GetWorkspaceId()) })
	}
	e.changes.add(c)
}

// maxChanges is the maximum number of changes that wait for the watcher. After more changes, the watcher verifies the access of all requests.
const maxChanges = 256

// changes has the changes that the watcher has not taken yet.
type changes struct {
	signal chan struct{}

	mu  sync.Mutex
	all []Change
	// isLost is set if there were more than maxChanges.
	isLost bool
}

func newChanges() *changes { return &changes{signal: make(chan struct{}, 1)} }

func (c *changes) add(change Change) {
	c.mu.Lock()
	if len(c.all) < maxChanges {
		c.all = append(c.all, change)
	} else {
		c.isLost = true
	}
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default: // the watcher has not begun its next round yet
	}
}

// take removes the changes, and returns a function that reports whether they may concern a request.
func (c *changes) take() func(*exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, isLost := c.all, c.isLost
	c.all, c.isLost = nil, false
	return func(x *exchange) bool {
		for _, change := range all {
			if change.concernsTarget(x.target) || x.visitor != nil && change.concernsVisitor(x.visitor, x.target.workspaceID) {
				return true
			}
		}
		return isLost
	}
}
