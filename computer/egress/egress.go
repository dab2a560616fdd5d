// Package egress gives computers a network for outgoing connections, without routes, bridges or packet filters of the machine,
// and without privileges of the server. Each computer has a network namespace with a link (package guest) to the server, which
// ends the computer's connections in itself and opens its own to their destinations:
//
//  1. The first process of a computer calls guest.PrepareNamespace in the computer's network namespace, and in each that a
//     process of the computer has for itself, and passes the files that it returns to the server.
//  2. The server calls Attach with the files. With On, a userspace network stack (network.go) accepts every connection and
//     datagram that the computer's kernel writes to the TUN device (device.go). With a proxy, the server accepts connections to a
//     listener in the namespace (forward.go).
//  3. Each connection, or exchange of datagrams between two ports, is a flow. A flow is admitted (flows.go) if the computer and
//     the node have a free one and the computer has not opened too many at once, and if the Policy allows the address that the
//     server then connects to (policy.go). Names are resolved by the computer before, so no later change of a name can matter.
//  4. The server connects, accepts the computer's connection only then, and copies bytes (relay.go, datagrams.go) until both
//     ends have closed, one has reset, the flow was idle for too long, or the computer is detached.
//
// Names are resolved by the resolvers of the node (dns.go). Echo requests are answered by the gateway only.
//
// Processes in computers are hostile: sizes, times and numbers are bounded for each computer, and flows for the node too. All checks
// are in the server, so that a process which gains control of the computer's network namespace reaches nothing more.
package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	gvisorlog "gvisor.dev/gvisor/pkg/log"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// Options are the settings of an Egress.
type Options struct {
	Mode Mode
	// Policy applies with the mode On. A proxy has a policy of its own.
	Policy Policy
	Limits Limits
	// Resolvers returns the DNS servers that queries are forwarded to, in the order of preference; nil: the servers of
	// /etc/resolv.conf, which is read for each query.
	Resolvers func() []netip.AddrPort
	// Log receives refused flows, at the level debug, and failures; nil: slog.Default.
	Log *slog.Logger
}

// Limits bound the use of the node by computers. A value of 0 selects the default.
type Limits struct {
	// Flows is the number of open flows of one computer with all of its links. NodeFlows is the number of open flows of all
	// computers. Each flow uses a file descriptor and up to about 600 KB of memory. Default: 256 and 4096.
	Flows, NodeFlows int
	// FlowsPerSecond is the rate at which a computer may open flows after FlowBurst at once. Connections beyond it are delayed,
	// since the computer's kernel tries again after a second, and datagrams are dropped. Default: 100 and 200.
	FlowsPerSecond, FlowBurst int
	// TCPIdle and UDPIdle are the times without a byte after which a flow is closed. Default: 1 hour and 2 minutes.
	TCPIdle, UDPIdle time.Duration
}

func (l Limits) withDefaults() (Limits, error) {
	for _, limit := range []struct {
		name     string
		value    *int
		standard int
	}{
		{"Flows", &l.Flows, 256}, {"NodeFlows", &l.NodeFlows, 4096}, {"FlowsPerSecond", &l.FlowsPerSecond, 100}, {"FlowBurst", &l.FlowBurst, 200},
	} {
		if *limit.value < 0 {
			return l, fmt.Errorf("egress: the limit %s is %d: it must not be negative", limit.name, *limit.value)
		}
		if *limit.value == 0 {
			*limit.value = limit.standard
		}
	}
	if l.TCPIdle < 0 || l.UDPIdle < 0 {
		return l, fmt.Errorf("egress: the idle times are %s and %s: they must not be negative", l.TCPIdle, l.UDPIdle)
	}
	if l.TCPIdle == 0 {
		l.TCPIdle = time.Hour
	}
	if l.UDPIdle == 0 {
		l.UDPIdle = 2 * time.Minute
	}
	return l, nil
}

// connectTime limits the time to connect to a destination, and closeTime the time in which a computer acknowledges the last bytes
// of a connection that both ends have closed.
const connectTime, closeTime = 15 * time.Second, 30 * time.Second

// Egress is the network for outgoing connections of all computers of a node. It is a prometheus.Collector and safe for
// concurrent use. Use New to create one.
type Egress struct {
	mode      Mode
	policy    Policy
	limits    Limits
	own       ownAddresses
	resolvers func() []netip.AddrPort
	log       *slog.Logger
	metrics   *metrics
	dialer    net.Dialer
	// warnings bounds the log messages that computers can cause.
	warnings rate.Sometimes
	// flows is the number of open flows of all computers.
	flows atomic.Int64

	mu sync.Mutex
	// budgets has the budgets of the computers with a link, by workspace.
	budgets map[string]*budget
}

// New returns an Egress. It returns an error if a limit is negative.
func New(o Options) (*Egress, error) {
	limits, err := o.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Egress{mode: o.Mode, policy: o.Policy, limits: limits, resolvers: o.Resolvers, log: o.Log, metrics: newMetrics(), budgets: map[string]*budget{}}
	e.own.read = net.InterfaceAddrs
	// The network stack logs to standard error about packets that it does not expect, which are the computer's.
	gvisorlog.SetTarget(&gvisorlog.Writer{Next: io.Discard})
	e.dialer.Timeout = connectTime
	e.warnings.Interval = time.Minute
	if e.resolvers == nil {
		e.resolvers = systemResolvers
	}
	if e.log == nil {
		e.log = slog.Default()
	}
	return e, nil
}

// Link returns the link that the first process of each computer passes to guest.PrepareNamespace.
func (e *Egress) Link() guest.Link { return e.mode.Link() }

// Env returns the variables that the environment of every process of a computer has, each "name=value".
func (e *Egress) Env() []string { return e.mode.Env() }

// ResolvConf returns the content of /etc/resolv.conf of computers.
func (e *Egress) ResolvConf() []byte { return e.mode.ResolvConf() }

// Attach serves a network of one computer from the files that guest.PrepareNamespace has returned in it, which it closes in any
// case. It does so until ctx ends or stop is called; the caller must see to that when the computer ends, because the network
// namespace exists as long. stop resets the computer's flows, and returns when all of its files are closed. It may be called more
// than once. A computer may have several networks, each with a link of its own; they share the limits of the computer. Attach
// returns an error if the files do not fit the mode.
func (e *Egress) Attach(ctx context.Context, workspaceID string, files []*os.File) (stop func(), err error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	link := e.Link()
	if link == guest.NoLink && len(files) == 0 {
		return func() {}, nil
	}
	if link == guest.NoLink || len(files) != 1 {
		return nil, fmt.Errorf("egress: attach the computer of workspace %s: %d files for the link %s", workspaceID, len(files), link)
	}
	c := newComputer(ctx, e, workspaceID)
	switch link {
	case guest.TUN:
		err = c.serveTUN(files[0])
	case guest.Proxy:
		err = c.serveProxy(files[0])
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("egress: attach the computer of workspace %s: %w", workspaceID, err)
	}
	return c.stop, nil
}
