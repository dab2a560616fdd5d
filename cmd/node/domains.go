package node

import (
	"context"
	"crypto/x509"
	"net/netip"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/binding"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/http/operator"
	"github.com/atelier-run/atelier/http/server"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence/datadir"
	"github.com/atelier-run/atelier/retry"
)

// DomainOptions are the settings of custom domains and certificates. The zero value requests no certificates.
type DomainOptions struct {
	// Enabled is set if the node requests certificates, which accepts the terms of service of the authority.
	Enabled bool
	// Directory, Roots, Email, CAAIdentities, Resolvers and PublicAddresses are as in domains.Options.
	Directory       string
	Roots           *x509.CertPool
	Email           string
	CAAIdentities   []string
	Resolvers       []string
	PublicAddresses []netip.Addr
	// EdgeHost is the end of the standard addresses of apps, without a port; empty: as in app.Addresses. Hosts are the node's own
	// hosts, whose certificates it obtains and renews.
	EdgeHost string
	Hosts    []string
}

// newDomains returns the part that looks up, certifies and serves custom host names. secret is that of the data directory.
func (n *Node) newDomains(o Options, secret []byte) (err error) {
	if n.certificateFiles, err = server.NewCertificateFiles(o.CertificateFiles, o.Clock, o.Log); err != nil {
		return err
	}
	key, err := datadir.CertificatesKey(secret)
	if err != nil {
		return err
	}
	d := o.Domains
	n.Domains, err = domains.New(domains.Options{
		Off: !d.Enabled, Asker: n.Router, Addresses: domainAddresses{n, o.appAddresses().EdgeHost, d.Hosts}, Key: key, Directory: d.Directory, Roots: d.Roots,
		Email: d.Email, CAAIdentities: d.CAAIdentities, Resolvers: d.Resolvers, PublicAddresses: d.PublicAddresses, TrustedProxies: o.HTTP.TrustedProxies,
		Clock: o.Clock, Log: o.Log,
	})
	return err
}

// domainExecutors returns the executors of the tasks of bindings.
func (n *Node) domainExecutors() map[string]actors.Executor {
	look := func(ctx context.Context, _ actors.Task, m *bindingv1.Check) (proto.Message, error) {
		return n.Domains.Check(ctx, m)
	}
	issue := func(ctx context.Context, _ actors.Task, m *bindingv1.Issue) (proto.Message, error) {
		return n.Domains.Issue(ctx, m)
	}
	cleanUp := func(ctx context.Context, _ actors.Task, m *bindingv1.CleanUp) (proto.Message, error) {
		return n.Domains.CleanUp(ctx, m)
	}
	return map[string]actors.Executor{
		binding.CheckTask:   {Limit: 8, Timeout: time.Minute, FirstPause: time.Second, LongestPause: 5 * time.Minute, Run: actors.RunTyped(look)},
		binding.IssueTask:   {Limit: 4, Timeout: 5 * time.Minute, FirstPause: time.Second, LongestPause: 5 * time.Minute, Run: actors.RunTyped(issue)},
		binding.CleanUpTask: {Limit: 4, Timeout: 2 * time.Minute, FirstPause: time.Second, LongestPause: 5 * time.Minute, Run: actors.RunTyped(cleanUp)},
	}
}

var (
	errFileCertificate = entity.Errorf(entity.InvalidRequest, "the certificate of this host is in a file that the setting certificate names; replace the file")
	errForeignHost     = entity.Errorf(entity.InvalidRequest, "this is neither the host name of a custom domain nor a host of the node")
)

// renewCertificate returns the function that replaces the certificate of a host of the node itself.
func (n *Node) renewCertificate(o Options) operator.RenewCertificate {
	return func(ctx context.Context, host string) error {
		if n.certificateFiles.Covers(host) {
			return errFileCertificate
		}
		own, err := domainAddresses{n, o.appAddresses().EdgeHost, o.Domains.Hosts}.IsOwn(ctx, host)
		if err == nil && !own {
			err = errForeignHost
		}
		if err != nil {
			return err
		}
		return n.Domains.Renew(ctx, host)
	}
}

// domainAddresses implements domains.Addresses.
type domainAddresses struct {
	n        *Node
	edgeHost string
	hosts    []string
}

// StandardAddress implements domains.Addresses. It asks the workspace, which follows its renames.
func (a domainAddresses) StandardAddress(ctx context.Context, workspaceID, appID string) (string, error) {
	anchor, err := entity.AskAsPlatform[*workspacev1.Anchor](ctx, a.n.Router, entity.KindWorkspace, workspaceID, &workspacev1.FindApp{AppId: appID})
	if err != nil {
		return "", err
	}
	workspace, err := entity.AskAsPlatform[*workspacev1.Description](ctx, a.n.Router, entity.KindWorkspace, workspaceID, &workspacev1.DescribeWorkspace{})
	if err != nil {
		return "", err
	}
	return app.StandardHost(anchor.GetApp().GetSlug(), workspace.GetWorkspace().GetSlug(), a.edgeHost), nil
}

// IsOwn implements domains.Addresses.
func (a domainAddresses) IsOwn(ctx context.Context, host string) (bool, error) {
	if slices.Contains(a.hosts, host) {
		return true, nil
	}
	appSlug, workspaceSlug, ok := app.SplitStandardHost(host, a.edgeHost)
	if !ok || slug.CheckForm(appSlug) != nil || slug.CheckForm(workspaceSlug) != nil {
		return false, nil
	}
	claimed, err := entity.AskAsPlatform[*slugv1.Slug](ctx, a.n.Router, entity.KindSlug, workspaceSlug, &slugv1.ResolveSlug{})
	if err != nil || claimed.GetWorkspaceId() == "" {
		return false, err
	}
	_, err = entity.AskAsPlatform[*workspacev1.Anchor](ctx, a.n.Router, entity.KindWorkspace, claimed.GetWorkspaceId(), &workspacev1.FindApp{Slug: appSlug})
	if entity.IsRefusal(err) {
		return false, nil
	}
	return err == nil, err
}

// lookAfter is the longest time between two looks at the standard address of an app: this process may not learn of a rename that
// another one has recorded. retryAfter is the pause after a look that failed.
const (
	lookAfter  = time.Hour
	retryAfter = time.Minute
)

// maintainStandardAddress obtains and renews the certificate of the standard address of an app until ctx ends. It follows the renames of
// the workspace. A certificate in a file, such as one for all names below the edge host, takes its place.
func (n *Node) maintainStandardAddress(ctx context.Context, o Options, identity string) {
	if !o.Domains.Enabled {
		return
	}
	workspaceID, appID := app.SplitIdentity(identity)
	present, end := "", context.CancelFunc(func() {})
	defer func() { end() }()
	for ctx.Err() == nil {
		renamed, wait := n.renames.next(workspaceID), lookAfter // before the look, which may miss a rename
		host, err := domainAddresses{n, o.appAddresses().EdgeHost, nil}.StandardAddress(ctx, workspaceID, appID)
		switch {
		case err != nil:
			wait = retryAfter
		case host != present:
			end()
			present, end = host, n.maintainHost(ctx, host)
		}
		retry.PauseUnless(ctx, wait, renamed)
	}
}

// maintainHost obtains and renews the certificate of a host, unless it is in a file, until ctx ends or end is called.
func (n *Node) maintainHost(ctx context.Context, host string) (end context.CancelFunc) {
	ctx, end = context.WithCancel(ctx)
	if !n.certificateFiles.Covers(host) {
		n.Domains.Maintain(ctx, []string{host})
	}
	return end
}

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
