package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"

	"github.com/atelier-run/atelier/computer/egress/guest"
	"github.com/atelier-run/atelier/retry"
)

const (
	// queriesAtOnce is the number of queries of one computer that may be open. queryConnections is the number of its connections
	// for queries.
	queriesAtOnce, queryConnections = 64, 16
	// queriesPerSecond is the rate of queries of one computer, after twice as many at once. Further ones are dropped.
	queriesPerSecond = 200
	// resolverTime limits the wait for the answer of one resolver, resolversAsked the number of resolvers that are asked one after
	// the other.
	resolverTime, resolversAsked = 2 * time.Second, 3
	// connectionTime limits the wait for the next query on a connection, and for the computer to take an answer.
	connectionTime = 10 * time.Second
	// maxDatagram is the size of the longest UDP answer that the node takes.
	maxDatagram = 4096
)

// dns answers the queries of one link to the gateway. It passes messages on as they are, except for their id.
type dns struct{ *computer }

// serveDNS answers queries to port 53 of the gateway, by UDP and TCP, with the help of the node's resolvers.
func (n *network) serveDNS() error {
	d := &dns{n.computer}
	address := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(guest.Gateway.AsSlice()), Port: 53}
	packets, err := gonet.DialUDP(n.stack, &address, nil, ipv4.ProtocolNumber)
	if err != nil {
		return fmt.Errorf("open the DNS port of the gateway: %w", err)
	}
	listener, err := gonet.ListenTCP(n.stack, address, ipv4.ProtocolNumber)
	if err != nil {
		packets.Close()
		return fmt.Errorf("open the DNS port of the gateway: %w", err)
	}
	context.AfterFunc(n.running, func() {
		packets.Close()
		listener.Close()
	})
	n.start(func() { d.answerPackets(packets) })
	n.start(func() { d.acceptConnections(listener) })
	return nil
}

// answerPackets answers the queries that arrive by UDP, and drops queries beyond the limits: the computer repeats them.
func (d *dns) answerPackets(packets *gonet.UDPConn) {
	buffer := make([]byte, maxDatagram)
	for {
		size, from, err := packets.ReadFrom(buffer)
		if d.running.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		d.answerPacket(buffer[:size], func(answer []byte) {
			// The datagram is lost if the computer does not take it.
			_, _ = packets.WriteTo(answer, from)
		})
	}
}

// answerPacket begins to answer a copy of a query, unless the computer sends too many queries or is detached.
func (d *dns) answerPacket(query []byte, send func(answer []byte)) {
	if !d.admitQuery() {
		return
	}
	query = bytes.Clone(query)
	started := d.start(func() {
		defer func() { <-d.budget.queries }()
		if answer := d.answer("udp", query); answer != nil {
			send(answer)
		}
	})
	if !started {
		<-d.budget.queries // other links of the computer use the budget
	}
}

// acceptConnections accepts connections for queries.
func (d *dns) acceptConnections(listener *gonet.TCPListener) {
	for {
		conn, err := listener.Accept()
		if d.running.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			retry.Pause(d.running, acceptPause)
			continue
		}
		d.serveConnection(conn)
	}
}

// serveConnection begins to answer the queries of a connection. It closes the connection if the computer has too many, or is detached.
func (d *dns) serveConnection(conn net.Conn) {
	select {
	case d.budget.queryConnections <- struct{}{}:
	default:
		d.egress.metrics.queries.WithLabelValues("refused").Inc()
		conn.Close()
		return
	}
	started := d.start(func() {
		defer func() { <-d.budget.queryConnections }()
		d.answerConnection(conn)
	})
	if !started {
		<-d.budget.queryConnections // other links of the computer use the budget
		conn.Close()
	}
}

// answerConnection answers the queries of a connection, one after the other. It closes the connection after the first message that
// is not a query.
func (d *dns) answerConnection(conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(d.running, func() { conn.Close() })()
	for {
		if err := conn.SetDeadline(time.Now().Add(connectionTime)); err != nil {
			return
		}
		query, err := readMessage(conn)
		if err != nil || !d.admitQuery() {
			return
		}
		answer := d.answer("tcp", query)
		<-d.budget.queries
		if answer == nil {
			return
		}
		if err := writeMessage(conn, answer); err != nil {
			return
		}
	}
}

// admitQuery takes an element of budget.queries, which the caller releases. It returns false if the computer asks too much.
func (d *dns) admitQuery() bool {
	if d.budget.queryRate.Allow() {
		select {
		case d.budget.queries <- struct{}{}:
			return true
		default:
		}
	}
	d.egress.metrics.queries.WithLabelValues("refused").Inc()
	return false
}

// answer returns the answer of the first resolver that gives one, or a message that says that there was none. It returns nil if
// the message is not a query.
func (d *dns) answer(network string, query []byte) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil || header.Response || header.OpCode != 0 {
		d.egress.metrics.queries.WithLabelValues("invalid").Inc()
		return nil
	}
	question, err := p.Question()
	if err != nil {
		d.egress.metrics.queries.WithLabelValues("invalid").Inc()
		return nil
	}
	resolvers := d.egress.resolvers()
	for _, resolver := range resolvers[:min(len(resolvers), resolversAsked)] {
		answer, err := d.ask(network, resolver, query, question)
		if err == nil {
			d.egress.metrics.queries.WithLabelValues("answered").Inc()
			return answer
		}
		// The name is not logged: it reveals the activity of a person.
		d.log.Debug("a resolver of the node did not answer", "resolver", resolver, "error", err)
	}
	d.egress.metrics.queries.WithLabelValues("failed").Inc()
	failure := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: header.ID, Response: true, RecursionDesired: header.RecursionDesired, RecursionAvailable: true, RCode: dnsmessage.RCodeServerFailure,
		},
		Questions: []dnsmessage.Question{question},
	}
	message, err := failure.Pack()
	if err != nil {
		return nil
	}
	return message
}

// ask returns a resolver's answer to a query, with the query's id. The resolver gets a random one from a random port, so that no
// third party can answer in its place.
func (d *dns) ask(network string, resolver netip.AddrPort, query []byte, question dnsmessage.Question) ([]byte, error) {
	ctx, cancel := context.WithTimeout(d.running, resolverTime)
	defer cancel()
	conn, err := d.egress.dialer.DialContext(ctx, network, resolver.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	sent := bytes.Clone(query)
	_, _ = rand.Read(sent[:2]) // it never fails
	if network == "udp" {
		_, err = conn.Write(sent)
	} else {
		err = writeMessage(conn, sent)
	}
	if err != nil {
		return nil, err
	}
	for {
		answer, err := readAnswer(network, conn)
		if err != nil {
			return nil, err
		}
		if isAnswer(answer, sent, question) {
			copy(answer[:2], query[:2])
			return answer, nil
		}
		if network == "tcp" {
			return nil, errors.New("the answer is for another query")
		}
	}
}

func readAnswer(network string, conn net.Conn) ([]byte, error) {
	if network == "tcp" {
		return readMessage(conn)
	}
	answer := make([]byte, maxDatagram)
	size, err := conn.Read(answer)
	return answer[:size], err
}

// isAnswer reports whether a message answers the query sent, which has the given question.
func isAnswer(message, sent []byte, question dnsmessage.Question) bool {
	var p dnsmessage.Parser
	header, err := p.Start(message)
	if err != nil || !header.Response || header.ID != binary.BigEndian.Uint16(sent) {
		return false
	}
	answered, err := p.Question()
	if err != nil {
		// A server that cannot read a query may not repeat it.
		return errors.Is(err, dnsmessage.ErrSectionDone) && header.RCode != dnsmessage.RCodeSuccess
	}
	return answered.Type == question.Type && answered.Class == question.Class &&
		strings.EqualFold(answered.Name.String(), question.Name.String())
}

// readMessage reads a message with its length before it (RFC 1035, section 4.2.2).
func readMessage(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	message := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, message)
	return message, err
}

// writeMessage writes a message of at most 65535 bytes with its length before it.
func writeMessage(w io.Writer, message []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...))
	return err
}

// systemResolvers returns the DNS servers of /etc/resolv.conf, or the DNS server of this machine if it names none (resolv.conf(5)).
func systemResolvers() []netip.AddrPort {
	var all []netip.AddrPort
	if file, err := os.Open("/etc/resolv.conf"); err == nil {
		defer file.Close()
		for lines := bufio.NewScanner(io.LimitReader(file, 64<<10)); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 2 || fields[0] != "nameserver" {
				continue
			}
			if address, err := netip.ParseAddr(fields[1]); err == nil {
				all = append(all, netip.AddrPortFrom(address, 53))
			}
		}
	}
	if len(all) == 0 {
		all = append(all, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 53))
	}
	return all
}
