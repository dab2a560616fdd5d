package server

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// Options configures a Server. Asker and Secret are required.
type Options struct {
	Asker Asker
	// Secret is the installation's: 32 bytes, the same on every member of a cluster.
	Secret []byte
	Log    *slog.Logger
	// Registerer registers the metrics; /metrics shows those of Gatherer. A registry is both.
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
	// Ready returns why requests cannot be answered; nil if they can.
	Ready func() error
	// NewID makes an id of a kind; the prefix has its underscore: "ws_".
	NewID func(prefix string) string
	Clock func() time.Time
	// StreamSegment is how long a stream lasts, ± 20 %.
	StreamSegment time.Duration
	// Heartbeat is the time between the comments of an idle stream.
	Heartbeat time.Duration
	// PublicURL is the address by which clients reach the server, without a path: "https://atelier.example.com". Links and
	// cookies depend on it.
	PublicURL *url.URL
	// TrustedProxies are believed what X-Forwarded-For says about their clients.
	TrustedProxies []netip.Prefix
	Limits         Limits
}

// Limits bounds what clients can take. 0 stands for the default.
type Limits struct {
	// Connections, beyond which requests are answered 503. The default leaves room beside as many streams as there
	// may be. What their requests' heads take together has a bound of its own (heads.go).
	Connections int
	// Requests under way, streams apart, beyond which more are answered 503. Those without a credential may be a quarter.
	Requests int
	// Streams open at a time, beyond which more are answered 503.
	Streams int
	// CredentialStreams open at a time with one credential, beyond which more are answered 429.
	CredentialStreams int
	// Rate of requests a second with one credential, of which Burst may be saved up; beyond it 429. Negative: none.
	Rate, Burst int
	// AddressRate of requests a second from one address to what is public, or with keys that are not known, of which
	// AddressBurst may be saved up; beyond it 429. Negative: none.
	AddressRate, AddressBurst int
	// Workspaces that a person may have created and not deleted; creating more is answered 409. Negative: any number.
	Workspaces int
	// RequestTime bounds an ordinary request.
	RequestTime time.Duration
	// StallTime is how long a transfer or a stream may go without moving a byte.
	StallTime time.Duration
	// HeaderTime bounds the arrival of a request's head, IdleTime the wait for the next request.
	HeaderTime, IdleTime time.Duration
}

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Asker == nil:
		return o, errors.New("http: Asker is required")
	case len(o.Secret) != 32:
		return o, errors.New("http: the secret must have 32 bytes")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	if o.Gatherer == nil {
		o.Gatherer, _ = o.Registerer.(prometheus.Gatherer)
	}
	if o.Gatherer == nil {
		o.Gatherer = prometheus.DefaultGatherer
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	if o.NewID == nil {
		o.NewID = newID
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.PublicURL == nil {
		o.PublicURL = &url.URL{Scheme: "http", Host: "localhost:8080"}
	}
	setDefault(&o.StreamSegment, 15*time.Minute)
	setDefault(&o.Heartbeat, 15*time.Second)
	o.Limits.setDefaults()
	return o, nil
}

// DefaultConnections are the Connections of Limits that leave them out.
const DefaultConnections = 12_000

func (l *Limits) setDefaults() {
	setDefault(&l.Connections, DefaultConnections)
	setDefault(&l.Requests, 4096)
	setDefault(&l.Streams, 10_000)
	setDefault(&l.CredentialStreams, 5000)
	setDefault(&l.Rate, 5000)
	setDefault(&l.Burst, 2*max(l.Rate, 0))
	setDefault(&l.AddressRate, 50)
	setDefault(&l.AddressBurst, 20*max(l.AddressRate, 0))
	setDefault(&l.Workspaces, 1000)
	setDefault(&l.RequestTime, 30*time.Second)
	setDefault(&l.StallTime, time.Minute)
	setDefault(&l.HeaderTime, 10*time.Second)
	setDefault(&l.IdleTime, 2*time.Minute)
}

func setDefault[T comparable](value *T, or T) {
	var zero T
	if *value == zero {
		*value = or
	}
}

// newID makes a lower-case ULID from the system's random source, without a lock between callers.
func newID(prefix string) string {
	var entropy [10]byte
	rand.Read(entropy[:])
	id := ulid.ULID{}
	id.SetTime(ulid.Now())
	id.SetEntropy(entropy[:])
	return prefix + strings.ToLower(id.String())
}
