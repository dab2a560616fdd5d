package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/edge/domains/domainstest"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/nodetest"
)

const (
	host     = "shop.example.com"
	edgeHost = "apps.example.net"
	own      = "platform.example.net"
	// testTimeout is longer than any test takes on a slow machine.
	testTimeout = 3 * time.Minute
)

// A site is a node that requests certificates of an authority, with a DNS server and the ports of the challenges.
type site struct {
	*testing.T
	dir       string
	dns       *domainstest.DNS
	authority *Authority
	node      *node.Node
	// current is the node that the listeners serve.
	current     atomic.Pointer[node.Node]
	http, https net.Listener
	// overHTTP and overTLS say which challenges are answered. answeredHTTP and answeredTLS count the answered challenges of each kind.
	overHTTP, overTLS         atomic.Bool
	answeredHTTP, answeredTLS atomic.Int64
	hosts                     []string
	// ahead is how far the clock of the node is ahead.
	ahead atomic.Int64
}

// newSite starts a site with two workspaces, each with an app. The challenges are answered over HTTP, over TLS, or over both.
func newSite(t *testing.T, overHTTP, overTLS bool, hosts ...string) *site {
	t.Helper()
	s := &site{T: t, dir: t.TempDir(), dns: domainstest.NewDNS(t), hosts: hosts}
	s.overHTTP.Store(overHTTP)
	s.overTLS.Store(overTLS)
	s.http, s.https = s.listen(), s.listen()
	s.authority = Start(t, Options{
		DNS: s.dns.Address, HTTPPort: portOf(s.http), TLSPort: portOf(s.https), Blocked: []string{"blocked.example.com"},
	})
	s.start()
	t.Cleanup(s.stop)
	s.serve()
	s.dns.Set(t, own, "A 127.0.0.1")
	for _, name := range []string{"one", "two"} {
		s.ask(entity.Platform(), entity.KindWorkspace, workspaceOf(name), &workspacev1.CreateWorkspace{Slug: name, Name: name, CreatorId: "usr_" + name})
		s.settle(entity.KindWorkspace, workspaceOf(name))
		s.ask(personOf(name), entity.KindWorkspace, workspaceOf(name), &workspacev1.RegisterApp{Registration: &appv1.Registration{
			AppId: appOf(name), AnchorId: "anc_1", Path: "site", Slug: "site", CreatedByUserId: "usr_" + name,
			Runtime: &appv1.Runtime{Command: "serve", Port: 8100},
		}, Seq: 1})
		s.settle(entity.KindWorkspace, workspaceOf(name))
		s.dns.Set(t, standardOf(name), "A 127.0.0.1")
	}
	return s
}

func workspaceOf(name string) string { return "ws_" + name }
func appOf(name string) string {
	return "app_0123456789abcdefghjkmnpq" + map[string]string{"one": "r1", "two": "r2"}[name]
}
func standardOf(name string) string { return "site--" + name + "." + edgeHost }

func personOf(name string) *wirev1.Principal {
	return &wirev1.Principal{Kind: wirev1.CredentialKind_CREDENTIAL_KIND_USER, UserId: "usr_" + name, CredentialId: "key_1"}
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func (s *site) listen() net.Listener {
	s.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	s.check(err)
	s.Cleanup(func() { l.Close() })
	return l
}

func (s *site) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) start() {
	s.Helper()
	n, err := node.Start(context.Background(), node.Options{
		Dir: s.dir, Wire: true, SampleEvery: time.Hour, Clock: s.now, Journal: persistence.Options{CacheBytes: 4 << 20, Partitions: 2},
		Domains: node.DomainOptions{
			Enabled: true, Directory: s.authority.Directory, Roots: s.authority.Roots, Email: "admin@example.net",
			Resolvers: []string{s.dns.Address}, PublicAddresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}, EdgeHost: edgeHost, Hosts: s.hosts,
		},
	})
	s.check(err)
	s.node = n
	s.current.Store(n)
}

// now returns the time of the node's clock.
func (s *site) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func (s *site) stop() { nodetest.Stop(s, s.node) }

// serve answers the authority at the ports of the challenges, and handshakes.
func (s *site) serve() {
	quiet := log.New(io.Discard, "", 0) // handshakes fail on purpose
	plain := &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.overHTTP.Load() {
			http.NotFound(w, r)
			return
		}
		s.answeredHTTP.Add(1)
		s.current.Load().Challenges(http.NotFoundHandler()).ServeHTTP(w, r)
	})}
	secure := &http.Server{ErrorLog: quiet, Handler: http.NotFoundHandler(), TLSConfig: &tls.Config{
		NextProtos: []string{"h2", "http/1.1", domains.ChallengeProtocol},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if len(hello.SupportedProtos) == 1 && hello.SupportedProtos[0] == domains.ChallengeProtocol {
				if !s.overTLS.Load() {
					return nil, fmt.Errorf("no challenge over TLS")
				}
				s.answeredTLS.Add(1)
			}
			return s.current.Load().TLS().GetCertificate(hello)
		},
	}}
	done := make(chan struct{}, 2)
	go func() { _ = plain.Serve(s.http); done <- struct{}{} }()
	go func() { _ = secure.ServeTLS(s.https, "", ""); done <- struct{}{} }()
	s.Cleanup(func() {
		plain.Close()
		secure.Close()
		<-done
		<-done
	})
}

func (s *site) ask(p *wirev1.Principal, kind, identity string, m proto.Message) proto.Message {
	s.Helper()
	reply, err := s.try(p, kind, identity, m)
	s.check(err)
	return reply
}

func (s *site) try(p *wirev1.Principal, kind, identity string, m proto.Message) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	return s.node.Router.Ask(ctx, entity.Command{Kind: kind, Identity: identity, Principal: p, Message: m})
}

func (s *site) settle(kind, identity string) {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	s.check(s.node.Router.Settle(ctx, kind, identity))
}

// app sends a message to the app of a workspace as its owner.
func (s *site) app(name string, m appv1.Command) *appv1.App {
	s.Helper()
	reply := s.ask(personOf(name), entity.KindApp, workspaceOf(name)+"/"+appOf(name), m)
	s.settle(entity.KindApp, workspaceOf(name)+"/"+appOf(name))
	return reply.(*appv1.Description).GetApp()
}

// domain returns the domain as the app shows it.
func (s *site) domain(name string) *appv1.Domain {
	s.Helper()
	return s.app(name, &appv1.DescribeApp{}).GetDomain()
}

// until waits until the domain of an app satisfies a condition.
func (s *site) until(name, what string, holds func(*appv1.Domain) bool) *appv1.Domain {
	s.Helper()
	timeout := time.After(testTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		d := s.domain(name)
		if holds(d) {
			return d
		}
		select {
		case <-timeout:
			s.Fatalf("the domain is not %s: %v", what, d)
		case <-time.After(pause):
		}
	}
}

// becomes waits until a domain has a status and no check is open that a member has requested.
func (s *site) becomes(name string, status appv1.DomainStatus) *appv1.Domain {
	s.Helper()
	return s.until(name, status.String(), func(d *appv1.Domain) bool { return d.GetStatus() == status && !d.GetChecking() })
}

// recheck requests a check, and waits for its end.
func (s *site) recheck(name string) *appv1.Domain {
	s.Helper()
	before := s.domain(name).GetLastCheckedAt()
	s.app(name, &appv1.RecheckDomain{})
	return s.until(name, "checked again", func(d *appv1.Domain) bool { return !d.GetChecking() && d.GetLastCheckedAt() > before })
}

// point sets the records of the host for the app of a workspace.
func (s *site) point(name string) {
	s.Helper()
	s.dns.Set(s, "_atelier."+host, "TXT "+binding.Token(workspaceOf(name), host))
	s.dns.Set(s, host, "CNAME "+standardOf(name)+".")
}

func (s *site) binding(c bindingv1.Command) *bindingv1.Binding {
	s.Helper()
	return s.ask(entity.Platform(), entity.KindBinding, host, c).(*bindingv1.Binding)
}

// certificate returns the certificate of a handshake for a name; nil if the handshake fails. It must be a certificate of the authority.
func (s *site) certificate(name string) *x509.Certificate {
	s.Helper()
	c, err := tls.Dial("tcp", s.https.Addr().String(), &tls.Config{ServerName: name, RootCAs: s.authority.Issued})
	if err != nil {
		if strings.Contains(err.Error(), "x509") {
			s.Errorf("the handshake for %s: %v", name, err)
		}
		return nil
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

// served waits until a name is served, or is not.
func (s *site) served(name string, want bool) *x509.Certificate {
	s.Helper()
	timeout := time.After(testTimeout)
	for {
		if c := s.certificate(name); (c != nil) == want {
			return c
		}
		select {
		case <-timeout:
			s.Fatalf("served: want %v for %s", want, name)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// replaced waits until a name is served with another certificate than one, and returns the other certificate. For the custom domain, it also
// waits until the binding has the report of the renewal: until then, another renewal is the same.
func (s *site) replaced(name string, one *x509.Certificate) *x509.Certificate {
	s.Helper()
	timeout := time.After(testTimeout)
	for {
		c := s.served(name, true)
		if c.SerialNumber.Cmp(one.SerialNumber) != 0 && (name != host || s.binding(&bindingv1.DescribeBinding{}).GetIssue() == nil) {
			return c
		}
		select {
		case <-timeout:
			s.Fatalf("the certificate of %s is not replaced", name)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// activate attaches the host to an app with the right records, and waits for its first certificate.
func (s *site) activate(name string) *x509.Certificate {
	s.Helper()
	s.point(name)
	s.app(name, &appv1.AttachDomain{DomainId: "dom_1", Hostname: host})
	s.becomes(name, active)
	return s.served(host, true)
}
