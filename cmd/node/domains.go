package node

import (
	"context"
	"crypto/x509"
	"net/netip"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/entity/binding"
	"github.com/atelier-run/atelier/http/server"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	"github.com/atelier-run/atelier/persistence/datadir"
	"github.com/atelier-run/atelier/service/domain"
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
	// hosts. The node obtains and renews their certificates.
	EdgeHost string
	Hosts    []string
}

// newDomains returns the part that looks up, certifies and serves custom host names. secret is the secret of the data directory.
func (n *Node) newDomains(o Options, secret []byte) (err error) {
	if n.certificateFiles, err = server.NewCertificateFiles(o.CertificateFiles, o.Clock, o.Log); err != nil {
		return err
	}
	key, err := datadir.CertificatesKey(secret)
	if err != nil {
		return err
	}
	d := o.Domains
	addresses := domain.Addresses{Asker: n.Router, EdgeHost: o.appAddresses().EdgeHost, Hosts: d.Hosts}
	n.Domains, err = domains.New(domains.Options{
		Off: !d.Enabled, Asker: n.Router, Addresses: addresses, Key: key, Directory: d.Directory, Roots: d.Roots,
		Email: d.Email, CAAIdentities: d.CAAIdentities, Resolvers: d.Resolvers, PublicAddresses: d.PublicAddresses, TrustedProxies: o.HTTP.TrustedProxies,
		Clock: o.Clock, Log: o.Log,
	})
	n.certificates = &domain.Certificates{Addresses: addresses, Files: n.certificateFiles, Issuer: n.Domains}
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
