package domains

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	"github.com/atelier-run/atelier/lru"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

const (
	// freshness is how long the answer whether a name is served is used. Within this time, every member stops serving a name after its
	// removal, and serves a renewed certificate.
	freshness = time.Second
	// ownFreshness is how long a cached certificate of one of the node's own hosts is used, because no answer has its serial number.
	// The member that has renewed the certificate of a host serves the new one at once, unless it was just loading the old one.
	ownFreshness = time.Minute
	// maxNames limits the cached names that are served. maxUnserved limits the cached names that are not served, which strangers choose.
	// maxCertificates limits the cached certificates.
	maxNames        = 20_000
	maxUnserved     = 4_000
	maxCertificates = 5_000
	// unknownRate and unknownBurst limit the look-ups of names that are not known to be served, each second, of all clients; see strangers.
	unknownRate  = 200
	unknownBurst = 1000
	// lookUpTimeout limits the look-ups of a handshake.
	lookUpTimeout = 5 * time.Second
)

var (
	errNoCertificate = errors.New("no certificate for this name")
	errManyNames     = errors.New("too many unknown names are asked for")
)

// Certificates has the certificates for handshakes. It never requests a certificate from the authority.
type Certificates struct {
	d       *Domains
	unknown *strangers
	flights singleflight.Group
	// names has the names that are or were served. unserved has all other names, so that a flood of unknown names evicts no served name.
	names, unserved *lru.Cache[string, servedName]
	loaded          *lru.Cache[string, loadedCertificate]
}

// A servedName is the answer to the question whether a name is served.
type servedName struct {
	served bool
	// serial is the serial number of the certificate of a bound name; empty for the node's own hosts.
	serial string
	until  time.Time
}

type loadedCertificate struct {
	certificate *tls.Certificate
	serial      string
	at          time.Time
}

func newCertificates(d *Domains) *Certificates {
	return &Certificates{
		d: d, unknown: newStrangers(unknownRate, unknownBurst, d.o.TrustedProxies), names: lru.New[string, servedName](maxNames),
		unserved: lru.New[string, servedName](maxUnserved), loaded: lru.New[string, loadedCertificate](maxCertificates),
	}
}

// Certificate returns the certificate for a handshake; it is a GetCertificate of tls.Config. It serves the names of active bindings, and the
// node's own hosts. It answers TLS-ALPN-01 for names with an open challenge. It returns an error for all other names.
func (c *Certificates) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(hello.Context(), lookUpTimeout)
	defer cancel()
	host, client := binding.NormalizeHostname(hello.ServerName), clientOf(hello)
	if binding.CheckHostname(host) != nil {
		return nil, errNoCertificate
	}
	if slices.Equal(hello.SupportedProtos, []string{ChallengeProtocol}) {
		return c.d.challengeCertificate(ctx, client, host)
	}
	name, err := c.name(ctx, client, host)
	if errors.Is(err, errManyNames) {
		c.d.metrics.served("refused")
		return nil, errNoCertificate
	}
	if err != nil {
		c.d.o.Log.Warn("a handshake failed because the name could not be looked up", slog.String("host", host), slog.Any("error", err))
		return nil, errNoCertificate
	}
	if !name.served {
		return nil, errNoCertificate
	}
	return c.certificate(ctx, host, name)
}

// clientOf returns the address of the client of a handshake. The address is invalid if the connection has no IP address.
func clientOf(hello *tls.ClientHelloInfo) netip.Addr {
	if hello.Conn == nil {
		return netip.Addr{}
	}
	if tcp, ok := hello.Conn.RemoteAddr().(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr()
	}
	return netip.Addr{}
}

// known returns the last answer about a name.
func (c *Certificates) known(host string) (servedName, bool) {
	if name, found := c.names.Get(host); found {
		return name, true
	}
	return c.unserved.Get(host)
}

// put stores an answer about a name.
func (c *Certificates) put(host string, name servedName) {
	if _, found := c.names.Get(host); found || name.served {
		c.names.Put(host, name)
		return
	}
	c.unserved.Put(host, name)
}

// name returns whether a name is served. Handshakes for the same name share one look-up. A name that was not served at its last look-up
// counts against the client. Errors: errManyNames, and the errors of the entities.
func (c *Certificates) name(ctx context.Context, client netip.Addr, host string) (servedName, error) {
	now := c.d.o.Clock()
	known, found := c.known(host)
	if found && now.Before(known.until) {
		return known, nil
	}
	if !(found && known.served) && !c.unknown.allow(now, client) {
		return servedName{}, errManyNames
	}
	answer, err, _ := c.flights.Do("name "+host, func() (any, error) {
		// The look-up continues although the handshake that has begun it ends.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookUpTimeout)
		defer cancel()
		name, err := c.lookUp(ctx, host)
		if err != nil {
			return servedName{}, err
		}
		name.until = now.Add(freshness)
		c.put(host, name)
		return name, nil
	})
	return answer.(servedName), err
}

func (c *Certificates) lookUp(ctx context.Context, host string) (servedName, error) {
	if own, err := c.d.o.Addresses.IsOwn(ctx, host); err != nil || own {
		return servedName{served: own}, err
	}
	s, err := entity.AskAsPlatform[*bindingv1.Binding](ctx, c.d.o.Asker, entity.KindBinding, host, &bindingv1.DescribeBinding{})
	return servedName{
		served: s.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, serial: s.GetCertificate().GetSerial(),
	}, err
}

// certificate returns the certificate of a served name. It loads the certificate from the store if the cached certificate is not the certificate of
// the binding.
func (c *Certificates) certificate(ctx context.Context, host string, name servedName) (*tls.Certificate, error) {
	now := c.d.o.Clock()
	cached, found := c.loaded.Get(host)
	limit := ownFreshness
	if name.serial != "" && cached.serial != name.serial {
		limit = freshness
	}
	if found && (now.Before(cached.at.Add(limit)) || name.serial != "" && cached.serial == name.serial) {
		c.d.metrics.served("hit")
		return cached.certificate, nil
	}
	c.d.metrics.served("miss")
	answer, err, _ := c.flights.Do("certificate "+host, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookUpTimeout)
		defer cancel()
		pair, err := c.d.loadPair(ctx, host)
		if err != nil || pair == nil {
			return (*tls.Certificate)(nil), errors.Join(err, errNoCertificate)
		}
		c.loaded.Put(host, loadedCertificate{pair, serialOf(pair.Leaf.SerialNumber), now})
		return pair, nil
	})
	if err != nil && found && now.Before(cached.certificate.Leaf.NotAfter) {
		return cached.certificate, nil // the store does not answer, or its certificate is being replaced
	}
	if err != nil {
		return nil, errNoCertificate
	}
	return answer.(*tls.Certificate), nil
}
