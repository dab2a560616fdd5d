package domain

import (
	"context"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/retry"
)

// Files are the files of certificates that the operator has provided.
type Files interface {
	// Covers reports whether the certificate of a host is in a file.
	Covers(host string) bool
}

// Issuer requests certificates from an authority.
type Issuer interface {
	// Maintain obtains and renews the certificates of hosts until ctx ends. Maintain returns at once.
	Maintain(ctx context.Context, hosts []string)
	// Renew replaces the certificate of a host. Errors: invalid_request if there is none to replace.
	Renew(ctx context.Context, host string) error
}

// Certificates manages the certificates of the hosts of a node. All fields are required. A certificate in a file, such as a certificate for
// all names below the edge host, takes the place of an issued certificate.
type Certificates struct {
	Addresses Addresses
	Files     Files
	Issuer    Issuer

	renames renames
}

var (
	errFileCertificate = entity.Errorf(entity.InvalidRequest, "the certificate of this host is in a file that the setting certificate names; replace the file")
	errForeignHost     = entity.Errorf(entity.InvalidRequest, "this is neither the host name of a custom domain nor a host of the node")
)

// Renew replaces the certificate of a host of the node itself. Errors: invalid_request, the errors of Issuer.Renew.
func (c *Certificates) Renew(ctx context.Context, host string) error {
	if c.Files.Covers(host) {
		return errFileCertificate
	}
	own, err := c.Addresses.IsOwn(ctx, host)
	if err == nil && !own {
		err = errForeignHost
	}
	if err != nil {
		return err
	}
	return c.Issuer.Renew(ctx, host)
}

// lookAfter is the longest time between two looks at the standard address of an app: this process may not learn of a rename that
// another process has recorded. retryAfter is the pause after a look that failed.
const (
	lookAfter  = time.Hour
	retryAfter = time.Minute
)

// MaintainStandardAddress obtains and renews the certificate of the standard address of an app until ctx ends. It follows the renames of
// the workspace. identity is the identity of the app.
func (c *Certificates) MaintainStandardAddress(ctx context.Context, identity string) {
	workspaceID, appID := app.SplitIdentity(identity)
	present, end := "", context.CancelFunc(func() {})
	defer func() { end() }()
	for ctx.Err() == nil {
		renamed, wait := c.renames.next(workspaceID), lookAfter // before the look, which may miss a rename
		host, err := c.Addresses.StandardAddress(ctx, workspaceID, appID)
		switch {
		case err != nil:
			wait = retryAfter
		case host != present:
			end()
			present, end = host, c.maintain(ctx, host)
		}
		retry.PauseUnless(ctx, wait, renamed)
	}
}

// maintain obtains and renews the certificate of a host, unless it is in a file, until ctx ends or end is called.
func (c *Certificates) maintain(ctx context.Context, host string) (end context.CancelFunc) {
	ctx, end = context.WithCancel(ctx)
	if !c.Files.Covers(host) {
		c.Issuer.Maintain(ctx, []string{host})
	}
	return end
}

// FollowRename says that a workspace may have been renamed: MaintainStandardAddress looks at the addresses of its apps.
func (c *Certificates) FollowRename(workspaceID string) { c.renames.notify(workspaceID) }

// renames notifies goroutines when a workspace is renamed.
type renames struct {
	mu sync.Mutex
	// awaited has a channel for each workspace, which its next rename closes.
	awaited map[string]chan struct{}
}

// next returns a channel that is closed at the next rename of a workspace.
func (r *renames) next(workspaceID string) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.awaited == nil {
		r.awaited = map[string]chan struct{}{}
	}
	if r.awaited[workspaceID] == nil {
		r.awaited[workspaceID] = make(chan struct{})
	}
	return r.awaited[workspaceID]
}

// notify says that a workspace may have been renamed.
func (r *renames) notify(workspaceID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if awaited := r.awaited[workspaceID]; awaited != nil {
		close(awaited)
		delete(r.awaited, workspaceID)
	}
}
