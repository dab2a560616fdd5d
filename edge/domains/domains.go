// Package domains gives custom host names their certificates: it looks up their DNS records, gets certificates from an ACME
// authority (RFC 8555), stores them, and serves them.
//
// The rules of a name are in package entity/binding. Its tasks are run here:
//
//   - Check looks up the records of a name (check.go, caa.go, resolvers.go). Each configured resolver is asked, and they must agree.
//   - Issue gets a certificate (issue.go, authority.go, renewal.go). The authority verifies the name by HTTP-01 or TLS-ALPN-01
//     (challenges.go).
//   - CleanUp removes the certificates of a released name.
//
// An executor returns the report that completes its task also if its work has failed. It returns an error only if its context was
// canceled, because the task then runs again, here or on another member.
//
// All durable data is in the store of certificates (package entity/certificates), which certmagic uses as its Storage
// (storage.go): certificates with their keys, the account at the authority, and the open challenges. So every member answers the
// requests of the authority, and serves the certificates that other members have obtained. Files are encrypted with
// AES-256-GCM by a key of the installation; the name of the file is authenticated with it. A file that cannot be decrypted counts as
// missing, so that after the loss of the key certificates are obtained again. Locks are leased and renewed, and fence each change.
//
// certmagic's own maintenance is not used: it has no certificates. A renewal is a task like the first request.
//
// Certificates serves handshakes (certificates.go). It never requests a certificate, and serves only names that are bound and active
// at that time, or that the node names its own. The sequence for a new name is:
//
//  1. An app claims the name: entity/binding opens the task domain.check.
//  2. Check reports the records. When they are there, the binding is verifying, and opens domain.issue.
//  3. Issue takes an order from the budget (entity/certificates), locks the name and orders the certificate.
//  4. The authority asks any member for the challenge: HTTPChallengeHandler on port 80, or Certificate on port 443.
//  5. The certificate and its key are stored by one command, and ReportIssued makes the binding active.
//  6. Certificate serves it, after at most a second on every member.
package domains

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/miekg/dns"
	"go.uber.org/zap"

	"github.com/atelier-run/atelier/entity"
)

// LetsEncrypt is the directory of the authority Let's Encrypt.
const LetsEncrypt = "https://acme-v02.api.letsencrypt.org/directory"

// KeyBytes is the length of Options.Key.
const KeyBytes = 32

// The defaults of Options.
const (
	// Let's Encrypt allows an account 300 orders in 3 hours; 50 of them remain for other uses of the account.
	defaultOrders       = 250
	defaultOrdersPeriod = 3 * time.Hour
	// maxResolvers limits the queries of a check.
	maxResolvers = 5
)

// Addresses names the hosts of this node. Its methods are called during handshakes and checks and return soon.
type Addresses interface {
	// StandardAddress returns the host of the standard address of an app.
	StandardAddress(ctx context.Context, workspace, app string) (string, error)
	// IsOwn reports whether a host is the platform's own or the registered standard address of an app.
	IsOwn(ctx context.Context, host string) (bool, error)
}

// Options configure Domains. Asker, Addresses and Key are required.
type Options struct {
	// Off makes every check fail, because the server requests no certificates. Names that were bound before can be cleaned up.
	Off       bool
	Asker     entity.Asker
	Addresses Addresses
	// Key encrypts the files of the store. It has KeyBytes bytes.
	Key []byte
	// Directory is the URL of the authority's directory; empty: LetsEncrypt.
	Directory string
	// Roots are the authorities of the certificate of Directory; nil: the authorities of the system.
	Roots *x509.CertPool
	// Email is the contact of the account at the authority; empty: none.
	Email string
	// CAAIdentities are the names of the authority in CAA records that permit it; nil: the names in its directory.
	CAAIdentities []string
	// Resolvers are the addresses of DNS resolvers, in the form host:port; nil: the resolvers of the system. More than half of the resolvers
	// must answer a check, and all answers must agree.
	Resolvers []string
	// PublicAddresses are the addresses at which this server is reached, for names that cannot have a CNAME record.
	PublicAddresses []netip.Addr
	// TrustedProxies are the networks of trusted proxies. The clients of a trusted proxy are not limited individually.
	TrustedProxies []netip.Prefix
	// Orders is the number of orders at the authority in OrdersPeriod, over all names and members; 0: 250 in 3 h.
	Orders       uint32
	OrdersPeriod time.Duration
	// Clock is the clock of rules; nil: time.Now.
	Clock func() time.Time
	Log   *slog.Logger
}

// Domains runs the tasks of bindings. Its methods are safe for concurrent use.
type Domains struct {
	// Certificates serves the certificates.
	Certificates *Certificates

	o         Options
	files     *files
	resolvers *resolvers
	// cache is required by certmagic. It stays empty.
	cache     *certmagic.Cache
	metrics   *metrics
	authority string
	challenge *challengeReader
	// maintained counts the goroutines of Maintain, and wakes has a channel of each by its host.
	maintained sync.WaitGroup
	wakes      sync.Map
}

// New returns Domains. It connects to nothing. It fails if an option is invalid.
func New(o Options) (*Domains, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("domains: %w", err)
	}
	directory, err := url.Parse(o.Directory)
	if err != nil || directory.Scheme != "https" || directory.Host == "" {
		return nil, fmt.Errorf("domains: the directory %q is not an https URL", o.Directory)
	}
	sealer, err := newSealer(o.Key)
	if err != nil {
		return nil, fmt.Errorf("domains: %w", err)
	}
	d := &Domains{o: o, authority: directory.Host + directory.Path}
	d.files = &files{asker: o.Asker, sealer: sealer, clock: o.Clock, log: o.Log}
	d.resolvers = newResolvers(o.Resolvers)
	d.metrics = newMetrics(d.files, o.Clock)
	d.challenge = newChallengeReader(d.files, o.TrustedProxies)
	d.Certificates = newCertificates(d)
	d.cache = certmagic.NewCache(certmagic.CacheOptions{
		GetConfigForCert: func(certmagic.Certificate) (*certmagic.Config, error) {
			return nil, errors.New("certmagic has no certificates")
		},
		Logger: zap.NewNop(), OCSPCheckInterval: 24 * time.Hour, RenewCheckInterval: 24 * time.Hour,
	})
	return d, nil
}

// Close waits for the goroutines of Maintain, and ends the goroutine of certmagic. It is called once, after the context of Maintain has
// ended.
func (d *Domains) Close() {
	d.maintained.Wait()
	d.cache.Stop()
}

// complete returns the options with their defaults.
func (o Options) complete() (Options, error) {
	if o.Asker == nil || o.Addresses == nil || len(o.Key) != KeyBytes {
		return o, fmt.Errorf("an Asker, Addresses and a key of %d bytes are required", KeyBytes)
	}
	if o.Directory == "" {
		o.Directory = LetsEncrypt
	}
	if o.Directory == LetsEncrypt && o.CAAIdentities == nil {
		o.CAAIdentities = []string{"letsencrypt.org"}
	}
	if o.Orders == 0 {
		o.Orders, o.OrdersPeriod = defaultOrders, defaultOrdersPeriod
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Resolvers == nil {
		o.Resolvers = systemResolvers()
	}
	if len(o.Resolvers) == 0 || len(o.Resolvers) > maxResolvers {
		return o, fmt.Errorf("%d resolvers are configured, want 1 to %d", len(o.Resolvers), maxResolvers)
	}
	for _, address := range o.Resolvers {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
			return o, fmt.Errorf("the resolver %q is not host:port", address)
		}
	}
	return o, nil
}

// systemResolvers returns the resolvers of the system. If the system has no resolvers, it returns the resolver of this machine, as resolv.conf(5)
// says.
func systemResolvers() []string {
	var all []string
	if system, err := dns.ClientConfigFromFile("/etc/resolv.conf"); err == nil {
		for _, server := range system.Servers[:min(len(system.Servers), maxResolvers)] {
			all = append(all, net.JoinHostPort(server, system.Port))
		}
	}
	if len(all) == 0 {
		all = []string{"127.0.0.1:53"}
	}
	return all
}
