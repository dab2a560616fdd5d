package node

import (
	"context"
	"crypto/x509"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence/datadir"
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
	// EdgeHost is the end of the standard addresses of apps, without a port. Hosts are the node's own hosts, whose certificates it
	// obtains and renews.
	EdgeHost string
	Hosts    []string
}

// newDomains returns the part that looks up, certifies and serves custom host names. secret is that of the data directory.
func (n *Node) newDomains(o Options, secret []byte) error {
	key, err := datadir.CertificatesKey(secret)
	if err != nil {
		return err
	}
	d := o.Domains
	n.Domains, err = domains.New(domains.Options{
		Off: !d.Enabled, Asker: n.Router, Addresses: domainAddresses{n, d.EdgeHost, d.Hosts}, Key: key, Directory: d.Directory, Roots: d.Roots,
		Email: d.Email, CAAIdentities: d.CAAIdentities, Resolvers: d.Resolvers, PublicAddresses: d.PublicAddresses, Clock: o.Clock, Log: o.Log,
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

// domainAddresses implements domains.Addresses.
type domainAddresses struct {
	n        *Node
	edgeHost string
	hosts    []string
}

// StandardAddress returns <app>--<workspace>.<edge host> (decisions, section 7). It asks the workspace, which follows its renames.
func (a domainAddresses) StandardAddress(ctx context.Context, workspaceID, appID string) (string, error) {
	reply, err := a.n.Router.Ask(ctx, entity.Command{
		Kind: entity.KindApp, Identity: workspaceID + "/" + appID, Principal: entity.Platform(), Message: &appv1.DescribeApp{},
	})
	if err != nil {
		return "", err
	}
	app, _ := reply.(*appv1.Description)
	if reply, err = a.n.Router.Ask(ctx, entity.Command{
		Kind: entity.KindWorkspace, Identity: workspaceID, Principal: entity.Platform(), Message: &workspacev1.DescribeWorkspace{},
	}); err != nil {
		return "", err
	}
	workspace, _ := reply.(*workspacev1.Description)
	return app.GetApp().GetSlug() + "--" + workspace.GetWorkspace().GetSlug() + "." + a.edgeHost, nil
}

// IsOwn reports whether the node obtains certificates of a host for itself.
func (a domainAddresses) IsOwn(_ context.Context, host string) (bool, error) {
	return slices.Contains(a.hosts, host), nil
}
