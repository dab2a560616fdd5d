package egress

import (
	"bytes"
	"context"
	"net"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// datagramBuffers are buffers for one datagram each. A flow has one only while a datagram is copied.
var datagramBuffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// acceptUDP starts a flow with the first datagram from a port of the computer to a destination. The stack calls it for one packet
// after the other, so it does not block: connecting a UDP socket sends nothing. It returns false if the computer's kernel shall
// learn that the destination cannot be reached.
func (n *network) acceptUDP(r *udp.ForwarderRequest) bool {
	to := destination(r.ID())
	release, reason := n.admit("udp", to)
	if reason != allowed {
		return reason == refusedRate
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		n.egress.metrics.failed.WithLabelValues("udp").Inc()
		release()
		return false
	}
	var queue waiter.Queue
	endpoint, createErr := r.CreateEndpoint(&queue)
	if createErr != nil {
		conn.Close()
		release()
		return false
	}
	go func() {
		defer release()
		n.exchange(endpoint, &queue, conn)
	}()
	return true
}

// exchange copies datagrams between an endpoint of the computer and a socket that is connected to the destination. It returns when
// none has passed for the idle time, the computer has closed its port, or it is detached, and closes both. Datagrams that one side
// cannot take are lost.
func (n *network) exchange(endpoint tcpip.Endpoint, queue *waiter.Queue, conn *net.UDPConn) {
	ctx, cancel := context.WithCancel(n.running)
	defer context.AfterFunc(ctx, func() { conn.Close() })() // also while a write waits
	idle := watch(n.egress.limits.UDPIdle, cancel)
	var in sync.WaitGroup
	in.Go(func() {
		n.receiveDatagrams(endpoint, conn, idle)
		cancel()
	})
	readable, notified := waiter.NewChannelEntry(waiter.ReadableEvents)
	queue.EventRegister(&readable)
	for n.sendDatagrams(endpoint, conn, idle) && ctx.Err() == nil {
		select {
		case <-notified:
		case <-ctx.Done():
		}
	}
	queue.EventUnregister(&readable)
	idle.stop()
	cancel()
	conn.Close()
	endpoint.Close()
	in.Wait()
}

// sendDatagrams sends the datagrams that the endpoint has received. It returns false if the computer has closed its port.
func (n *network) sendDatagrams(endpoint tcpip.Endpoint, conn *net.UDPConn, idle *watchdog) bool {
	buffer := datagramBuffers.Get().(*[64 << 10]byte)
	defer datagramBuffers.Put(buffer)
	for {
		w := tcpip.SliceWriter(buffer[:])
		read, err := endpoint.Read(&w, tcpip.ReadOptions{})
		if err != nil {
			_, isEmpty := err.(*tcpip.ErrWouldBlock)
			return isEmpty
		}
		idle.touch()
		if sent, err := conn.Write(buffer[:read.Count]); err == nil {
			n.egress.metrics.out.Add(float64(sent))
		}
	}
}

// receiveDatagrams passes the datagrams of the destination on to the computer, until the socket is closed.
func (n *network) receiveDatagrams(endpoint tcpip.Endpoint, conn *net.UDPConn, idle *watchdog) {
	raw, err := conn.SyscallConn()
	for err == nil {
		err = raw.Read(func(fd uintptr) (done bool) {
			buffer := datagramBuffers.Get().(*[64 << 10]byte)
			defer datagramBuffers.Put(buffer)
			size, err := unix.Read(int(fd), buffer[:])
			if err != nil {
				// Of the errors, EAGAIN waits. The others report that an earlier datagram was not delivered.
				return err != unix.EAGAIN
			}
			idle.touch()
			if _, err := endpoint.Write(bytes.NewReader(buffer[:size]), tcpip.WriteOptions{}); err == nil {
				n.egress.metrics.in.Add(float64(size))
			}
			return true
		})
	}
}
