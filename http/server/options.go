package server

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// Options configures a Server. Asker and Secret are required.
type Options struct {
	Asker entity.AskSettler
	// Secret is the installation's secret: 32 bytes, the same on every member of a cluster.
	Secret []byte
	Log    *slog.Logger
	// Registerer registers the metrics, and /metrics exports the metrics of Gatherer. A prometheus.Registry is both.
	Registerer prometheus.Registerer
	Gatherer   prometheus.Gatherer
	// Ready returns nil if requests can be answered, or else the reason why they cannot.
	Ready func() error
	// NewID returns a new id; prefix names its kind and ends in an underscore: "ws_".
	NewID func(prefix string) string
	Clock func() time.Time
	// StreamSegment is the duration of a stream, ± 20 %, after which the client reconnects.
	StreamSegment time.Duration
	// Heartbeat is the time between the comments on an idle stream.
	Heartbeat time.Duration
	// PublicURL is the address of the server for clients, without a path: "https://atelier.example.com". Links and cookies
	// depend on it.
	PublicURL *url.URL
	// Hosts are further host names of the server, beside the host of PublicURL, loopback names and IP addresses. Requests for other
	// names are refused, except requests for the names of apps and requests of monitoring.
	Hosts []string
	// TrustedProxies are the networks of trusted proxies; X-Forwarded-For is ignored from all other peers.
	TrustedProxies []netip.Prefix
	// Edge serves the hosts of apps; nil: the server serves no apps.
	Edge Edge
	// SeparateMetrics is set if the metrics are served by ServeMetrics, and not on the public listener.
	SeparateMetrics bool
	// StrictTransport is how long browsers must use HTTPS (RFC 6797). Responses over HTTPS say so; 0: they do not.
	StrictTransport time.Duration
	Limits          Limits
}

// Limits bounds the resources that clients can take. 0 stands for the default.
type Limits struct {
	// Connections is the number of slots for open connections; see connections.go. The default leaves room for other connections
	// beside the maximum number of streams. Unfinished heads have a limit of their own; see listener.go.
	Connections int
	// Requests is the number of slots for requests in flight, without streams; see slots.go. Requests without a credential can take
	// a quarter of them.
	Requests int
	// BodyMemory bounds the memory for the bodies of requests that are read into memory, in bytes; see bodies.go.
	BodyMemory int
	// Streams is the number of slots for open streams. Running commands, connections to terminals and requests that wait for an agent
	// count as streams.
	Streams int
	// CredentialStreams is the number of open streams with one credential beyond which more are answered 429.
	CredentialStreams int
	// CredentialTerminals is the number of terminals that were opened with one credential and have not ended, beyond which
	// opening one is answered 429.
	CredentialTerminals int
	// Rate is the number of requests a second with one credential. Burst of them can be saved up; further requests are
	// answered 429. Negative: no limit.
	Rate, Burst int
	// AddressRate is the number of requests a second from one address to public operations or with unknown keys.
	// AddressBurst of them can be saved up; further requests are answered 429. Negative: no limit.
	AddressRate, AddressBurst int
	// Workspaces is the number of workspaces that a person may have created and not deleted, beyond which creating one is
	// answered 409. Negative: no limit.
	Workspaces int
	// BodyRate is the number of bytes a second that a body must have, on average over StallTime in an upload and over HeaderTime in an
	// ordinary request. Negative: one byte in that time.
	BodyRate int
	// RequestTime bounds the duration of an ordinary request.
	RequestTime time.Duration
	// StallTime is the time after which a transfer or a stream that moves no byte ends. An upload must have BodyRate in it.
	StallTime time.Duration
	// HeaderTime bounds the time in which a request's head arrives, IdleTime the time between two requests of a connection.
	HeaderTime, IdleTime time.Duration
}

// DefaultPublicURL returns the address of a server that has no other.
func DefaultPublicURL() *url.URL { return &url.URL{Scheme: "http", Host: "localhost:8080"} }

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
		o.NewID = NewID
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.PublicURL == nil {
		o.PublicURL = DefaultPublicURL()
	}
	setDefault(&o.StreamSegment, 15*time.Minute)
	setDefault(&o.Heartbeat, 15*time.Second)
	o.Limits.setDefaults()
	return o, nil
}

// DefaultConnections is the default of Limits.Connections.
const DefaultConnections = 12_000

// DefaultBodyMemory is the default of Limits.BodyMemory.
const DefaultBodyMemory = 512 << 20

func (l *Limits) setDefaults() {
	setDefault(&l.Connections, DefaultConnections)
	setDefault(&l.Requests, 4096)
	setDefault(&l.BodyMemory, DefaultBodyMemory)
	setDefault(&l.Streams, 10_000)
	setDefault(&l.CredentialStreams, 5000)
	setDefault(&l.CredentialTerminals, 64)
	setDefault(&l.Rate, 5000)
	setDefault(&l.Burst, 2*max(l.Rate, 0))
	setDefault(&l.AddressRate, 50)
	setDefault(&l.AddressBurst, 20*max(l.AddressRate, 0))
	setDefault(&l.Workspaces, 1000)
	setDefault(&l.BodyRate, 1024)
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

// NewID returns a new id: a lower-case ULID from the system's random source, which needs no lock between callers.
func NewID(prefix string) string {
	var entropy [10]byte
	rand.Read(entropy[:])
	id := ulid.ULID{}
	id.SetTime(ulid.Now())
	id.SetEntropy(entropy[:])
	return prefix + strings.ToLower(id.String())
}
