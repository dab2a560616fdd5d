package domains

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
)

const (
	// freshness is the time for which an answer is used that a name is served. Within it, every member stops serving a name after its
	// removal, and serves a renewed certificate.
	freshness = time.Second
	// ownFreshness is that time for the certificates of the node's own hosts, whose renewal is not announced.
	ownFreshness = time.Minute
	// maxNames limits the answers that are cached, maxCertificates the certificates. The names are chosen by strangers.
	maxNames        = 20_000
	maxCertificates = 5_000
	// unknownRate limits the look-ups of names that are not known to be served.
	unknownRate  = 200
	unknownBurst = 1000
	// lookUpTimeout limits the look-ups of a handshake.
	lookUpTimeout = 5 * time.Second
)

var (
	errNoCertificate = errors.New("no certificate for this name")
	errManyNames     = errors.New("too many unknown names are asked for")
)

// Certificates has the certificates for handshakes. It never requests one from the authority.
type Certificates struct {
	d       *Domains
	unknown *rate.Limiter
	flights singleflight.Group
	names   *lru[servedName]
	loaded  *lru[loadedCertificate]
}

// A servedName is the answer to whether a name is served.
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
		d: d, unknown: rate.NewLimiter(unknownRate, unknownBurst), names: newLRU[servedName](maxNames),
		loaded: newLRU[loadedCertificate](maxCertificates),
	}
}

// Certificate returns the certificate for a handshake; it is a GetCertificate of tls.Config. The names are those of active bindings, and
// of the node's own hosts. It answers TLS-ALPN-01 for names whose challenge is open. It returns an error for all others.
func (c *Certificates) Certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	ctx, cancel := context.WithTimeout(hello.Context(), lookUpTimeout)
	defer cancel()
	host := binding.NormalizeHostname(hello.ServerName)
	if binding.CheckHostname(host) != nil {
		return nil, errNoCertificate
	}
	if slices.Equal(hello.SupportedProtos, []string{ChallengeProtocol}) {
		return c.d.challengeCertificate(ctx, host)
	}
	name, err := c.name(ctx, host)
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

// name returns whether a name is served. Handshakes for the same name share one look-up.
func (c *Certificates) name(ctx context.Context, host string) (servedName, error) {
	now := c.d.o.Clock()
	known, found := c.names.get(host)
	if found && now.Before(known.until) {
		return known, nil
	}
	if !(found && known.served) && !c.unknown.Allow() {
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
		c.names.put(host, name)
		return name, nil
	})
	return answer.(servedName), err
}

func (c *Certificates) lookUp(ctx context.Context, host string) (servedName, error) {
	if own, err := c.d.o.Addresses.IsOwn(ctx, host); err != nil || own {
		return servedName{served: own}, err
	}
	reply, err := c.d.o.Asker.Ask(ctx, entity.Command{
		Kind: entity.KindBinding, Identity: host, Principal: entity.Platform(), Message: &bindingv1.DescribeBinding{},
	})
	if err != nil {
		return servedName{}, err
	}
	s, _ := reply.(*bindingv1.Binding)
	return servedName{
		served: s.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_ACTIVE, serial: s.GetCertificate().GetSerial(),
	}, nil
}

// certificate returns the certificate of a served name. It loads it from the store if the cached one is not that of the binding.
func (c *Certificates) certificate(ctx context.Context, host string, name servedName) (*tls.Certificate, error) {
	now := c.d.o.Clock()
	cached, found := c.loaded.get(host)
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
		c.loaded.put(host, loadedCertificate{pair, serialOf(pair.Leaf.SerialNumber), now})
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
