package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

const (
	// nic is the only interface of a stack.
	nic = 1
	// connecting is the number of connections of one computer that may be opening. Further ones are delayed.
	connecting = 64
	// bufferBytes is the size of each of the two buffers of a TCP endpoint. It need not grow: the way to the computer is short,
	// and the kernel has buffers for the way to the destination.
	bufferBytes = 256 << 10
)

// A network is the userspace network stack of one computer. It has the address of the gateway, and accepts packets to all others
// as if it had these, too.
type network struct {
	*computer
	stack *stack.Stack
}

// serveTUN serves the TUN device of the computer.
func (c *computer) serveTUN(file *os.File) error {
	d, err := openDevice(file)
	if err != nil {
		return err
	}
	return c.serveDevice(d)
}

// serveDevice serves a device, which it closes in any case.
func (c *computer) serveDevice(d *device) (err error) {
	n := &network{computer: c}
	if n.stack, err = newStack(d); err != nil {
		d.Close()
		return err
	}
	forwarder := tcp.NewForwarder(n.stack, bufferBytes, connecting, n.acceptTCP)
	n.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, forwarder.HandlePacket)
	n.stack.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(n.stack, n.acceptUDP).HandlePacket)
	// The stack would answer echo requests in the name of every IPv6 address; it does not for IPv4.
	n.stack.SetTransportProtocolHandler(icmp.ProtocolNumber6, func(stack.TransportEndpointID, *stack.PacketBuffer) bool { return true })
	isOpen := c.link(func() {
		d.Close()
		go n.destroy()
	})
	if !isOpen {
		return context.Cause(c.running)
	}
	if err := n.serveDNS(); err != nil {
		return err
	}
	c.start(func() {
		err := d.readPackets()
		if !errors.Is(err, os.ErrClosed) {
			c.log.Debug("the network namespace of a computer was removed", "error", err)
		}
		c.cancel()
	})
	return nil
}

// destroy ends all endpoints of the stack, also endpoints that are created until all work of the computer is done.
func (n *network) destroy() {
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		n.stack.Close()
		select {
		case <-n.finished:
			n.stack.Destroy()
			return
		case <-retry.C:
		}
	}
}

// newStack returns a stack with the device d as its only interface.
func newStack(d *device) (*stack.Stack, error) {
	// Without options, the stack neither follows router advertisements nor looks for neighbors.
	withoutDiscovery := ipv6.NewProtocolWithOptions(ipv6.Options{})
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, withoutDiscovery},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	sack, noGrowth := tcpip.TCPSACKEnabled(true), tcpip.TCPModerateReceiveBufferOption(false)
	// The link neither delays nor repeats packets, so a short TIME-WAIT does.
	timeWait := tcpip.TCPTimeWaitTimeoutOption(time.Second)
	for _, option := range []tcpip.SettableTransportProtocolOption{
		&sack, &noGrowth, &timeWait,
		&tcpip.TCPSendBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: bufferBytes, Max: bufferBytes},
		&tcpip.TCPReceiveBufferSizeRangeOption{Min: tcp.MinBufferSize, Default: bufferBytes, Max: bufferBytes},
	} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, option); err != nil {
			return nil, fmt.Errorf("set the option %T of the network stack: %s", option, err)
		}
	}
	gateway := tcpip.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: tcpip.AddrFromSlice(guest.Gateway.AsSlice()).WithPrefix()}
	for _, step := range []func() tcpip.Error{
		func() tcpip.Error { return s.CreateNIC(nic, d) },
		func() tcpip.Error { return s.AddProtocolAddress(nic, gateway, stack.AddressProperties{}) },
		func() tcpip.Error { return s.SetPromiscuousMode(nic, true) },
		func() tcpip.Error { return s.SetSpoofing(nic, true) },
	} {
		if err := step(); err != nil {
			s.Destroy()
			return nil, fmt.Errorf("create the network stack: %s", err)
		}
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	return s, nil
}

// destination returns the destination of the computer's packets of a flow. IPv4 addresses mapped to IPv6 become IPv4.
func destination(id stack.TransportEndpointID) netip.AddrPort {
	address, _ := netip.AddrFromSlice(id.LocalAddress.AsSlice())
	return netip.AddrPortFrom(address.Unmap(), id.LocalPort)
}

// acceptTCP connects to the destination of a computer's connection, accepts it, and copies until both have ended. The stack calls
// it in a goroutine of its own. A refused connection is reset, except if the computer has opened too many: then its kernel
// tries again.
func (n *network) acceptTCP(r *tcp.ForwarderRequest) {
	to := destination(r.ID())
	release, reason := n.admit("tcp", to)
	if reason != allowed {
		r.Complete(reason != refusedRate)
		return
	}
	defer release()
	conn, err := n.egress.dialer.DialContext(n.running, "tcp", to.String())
	if err != nil {
		n.egress.metrics.failed.WithLabelValues("tcp").Inc()
		r.Complete(true)
		return
	}
	outer := socket{conn.(*net.TCPConn)}
	var queue waiter.Queue
	stopAbort := context.AfterFunc(n.running, outer.abort)
	endpoint, handshakeErr := r.CreateEndpoint(&queue)
	r.Complete(false)
	stopAbort()
	if handshakeErr != nil {
		outer.abort()
		return
	}
	n.relay(&guestStream{gonet.NewTCPConn(&queue, endpoint), endpoint, &queue}, outer)
}

// A guestStream is a stream of the userspace network stack.
type guestStream struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
	queue    *waiter.Queue
}

func (s *guestStream) abort() { s.endpoint.Abort() }

// finish waits until the computer has acknowledged all bytes, but at most for closeTime: it must not collect closed endpoints
// with full buffers.
func (s *guestStream) finish(ctx context.Context) {
	closed, notified := waiter.NewChannelEntry(waiter.EventHUp)
	s.queue.EventRegister(&closed)
	defer s.queue.EventUnregister(&closed)
	if s.endpoint.Readiness(waiter.EventHUp) == 0 {
		late := time.NewTimer(closeTime)
		defer late.Stop()
		select {
		case <-notified:
		case <-late.C:
		case <-ctx.Done():
		}
	}
	s.endpoint.Abort()
	s.endpoint.Close()
}
