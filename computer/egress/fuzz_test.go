package egress

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// packet returns an IPv4 or IPv6 packet of a computer.
func packet(protocol tcpip.TransportProtocolNumber, to string, transport []byte) []byte {
	destination := netip.MustParseAddr(to)
	if destination.Is6() {
		b := make([]byte, header.IPv6MinimumSize)
		header.IPv6(b).Encode(&header.IPv6Fields{
			PayloadLength: uint16(len(transport)), TransportProtocol: protocol, HopLimit: 64,
			SrcAddr: tcpip.AddrFromSlice(guest.Address6.AsSlice()), DstAddr: tcpip.AddrFromSlice(destination.AsSlice()),
		})
		return append(b, transport...)
	}
	b := make([]byte, header.IPv4MinimumSize)
	header.IPv4(b).Encode(&header.IPv4Fields{
		TotalLength: uint16(len(b) + len(transport)), TTL: 64, Protocol: uint8(protocol), ID: 7,
		SrcAddr: tcpip.AddrFromSlice(guest.Address.AsSlice()), DstAddr: tcpip.AddrFromSlice(destination.AsSlice()),
	})
	return append(b, transport...)
}

func tcpSegment(port uint16, flags header.TCPFlags, payload string) []byte {
	b := make([]byte, header.TCPMinimumSize)
	header.TCP(b).Encode(&header.TCPFields{
		SrcPort: 40000, DstPort: port, SeqNum: 100, AckNum: 0, DataOffset: header.TCPMinimumSize, Flags: flags, WindowSize: 65535,
	})
	return append(b, payload...)
}

func udpDatagram(port uint16, payload string) []byte {
	b := make([]byte, header.UDPMinimumSize)
	header.UDP(b).Encode(&header.UDPFields{SrcPort: 40000, DstPort: port, Length: uint16(len(b) + len(payload))})
	return append(b, payload...)
}

// fixChecksums corrects the checksums of a packet where it has room for them, so that the stack reads on.
func fixChecksums(b []byte) {
	var addresses, transport []byte
	var protocol byte
	switch {
	case len(b) >= header.IPv4MinimumSize && b[0]>>4 == 4:
		size := int(b[0]&15) * 4
		if size < header.IPv4MinimumSize || size > len(b) {
			return
		}
		header.IPv4(b).SetChecksum(0)
		header.IPv4(b).SetChecksum(^header.IPv4(b).CalculateChecksum())
		addresses, transport, protocol = b[12:20], b[size:], b[9]
	case len(b) >= header.IPv6MinimumSize && b[0]>>4 == 6:
		addresses, transport, protocol = b[8:40], b[40:], b[6]
	default:
		return
	}
	position, hasPseudo := map[byte]int{1: 2, 6: 16, 17: 6, 58: 2}[protocol], protocol != 1
	if position == 0 || len(transport) < position+2 {
		return
	}
	field := transport[position : position+2]
	clear(field)
	sum := checksum.Checksum(transport, 0)
	if hasPseudo {
		sum = checksum.Checksum(addresses, sum)
		sum = checksum.Checksum(binary.BigEndian.AppendUint32([]byte{0, protocol}, uint32(len(transport))), sum)
	}
	binary.BigEndian.PutUint16(field, ^sum)
}

// echoRequest asks the gateway, which answers after it has handled all packets before.
func echoRequest() []byte {
	b := make([]byte, header.ICMPv4MinimumSize+4)
	header.ICMPv4(b).SetType(header.ICMPv4Echo)
	copy(b[header.ICMPv4MinimumSize:], "last")
	p := packet(header.ICMPv4ProtocolNumber, guest.Gateway.String(), b)
	fixChecksums(p)
	return p
}

// The bits of a packet's length in the input of FuzzPackets.
const (
	// correct: the checksums are corrected.
	correct = 1 << 15
	// relative: the packet is of the connection that is open, and its numbers are relative to the numbers of the connection.
	relative = 1 << 14
)

// FuzzPackets opens a connection from a new computer, passes packets and waits for an answer to an echo request after them. The
// input has packets with their length before them, in two bytes with the bits above.
func FuzzPackets(f *testing.F) {
	requireNamespaces(f) // so that no packet leaves the test
	server := netip.MustParseAddrPort(listen(f, publicAddress, echo)).Port()
	join := func(packets ...[]byte) (all []byte) {
		for _, p := range packets {
			all = append(binary.BigEndian.AppendUint16(all, uint16(len(p))|correct|relative), p...)
		}
		return all
	}
	syn := packet(header.TCPProtocolNumber, publicAddress, tcpSegment(server, header.TCPFlagSyn, ""))
	query := udpDatagram(53, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03one\x07example\x00\x00\x01\x00\x01")
	fragment := packet(header.UDPProtocolNumber, publicAddress, udpDatagram(9, "fragment"))
	fragment[6] = 0x20 // more fragments
	for _, seed := range [][]byte{
		nil,
		random(100),
		join(packet(header.TCPProtocolNumber, publicAddress, tcpSegment(server, header.TCPFlagAck, "data")),
			packet(header.TCPProtocolNumber, publicAddress, tcpSegment(server, header.TCPFlagAck|header.TCPFlagUrg, "data")),
			packet(header.TCPProtocolNumber, publicAddress, tcpSegment(server, header.TCPFlagAck|header.TCPFlagFin, "data"))),
		join(packet(header.TCPProtocolNumber, publicAddress, tcpSegment(server, header.TCPFlagRst, ""))),
		join(syn, syn, packet(header.TCPProtocolNumber, publicAddress, tcpSegment(server, header.TCPFlagAck|header.TCPFlagFin, "data"))),
		join(packet(header.TCPProtocolNumber, publicAddress6, tcpSegment(server, header.TCPFlagSyn, ""))),
		join(packet(header.TCPProtocolNumber, "127.0.0.1", tcpSegment(server, header.TCPFlagSyn, ""))),
		join(packet(header.TCPProtocolNumber, "::ffff:127.0.0.1", tcpSegment(server, header.TCPFlagSyn|header.TCPFlagRst, ""))),
		join(packet(header.TCPProtocolNumber, "192.0.0.1", tcpSegment(53, header.TCPFlagSyn, ""))),
		join(packet(header.UDPProtocolNumber, "192.0.0.1", query), packet(header.UDPProtocolNumber, publicAddress, query)),
		join(packet(header.UDPProtocolNumber, "224.0.0.1", query), packet(header.UDPProtocolNumber, "ff02::1", query), fragment),
		join(packet(header.ICMPv6ProtocolNumber, "ff02::2", []byte{133, 0, 0, 0, 0, 0, 0, 0})),
		join(packet(header.ICMPv6ProtocolNumber, publicAddress6, []byte{128, 0, 0, 0, 0, 0, 0, 0})),
	} {
		f.Add(seed)
	}
	e := newEgress(f, Options{Limits: Limits{FlowsPerSecond: 1e6, FlowBurst: 1e6}})
	f.Fuzz(func(t *testing.T, input []byte) {
		c, socket := newPacketComputer(t, e)
		defer unix.Close(socket)
		defer c.stop()
		number := openConnection(t, socket, server)
		for len(input) >= 2 {
			size := binary.BigEndian.Uint16(input)
			p := bytes.Clone(input[2:min(len(input), 2+int(size&^(correct|relative)))])
			input = input[2+len(p):]
			if isTCP := len(p) >= 40 && p[0] == 0x45 && p[9] == byte(header.TCPProtocolNumber); isTCP && size&relative > 0 {
				tcp := header.TCP(p[20:])
				tcp.SetSourcePort(openPort)
				tcp.SetDestinationPort(server)
				tcp.SetSequenceNumber(tcp.SequenceNumber() + 1)
				tcp.SetAckNumber(tcp.AckNumber() + number + 1)
			}
			if size&correct > 0 {
				fixChecksums(p)
			}
			if len(p) > 0 { // an empty one is the end of the socket
				if _, err := unix.Write(socket, p); err != nil {
					t.Fatal(err)
				}
			}
		}
		awaitEcho(t, socket)
	})
}

// openPort is the port of the computer's connection in FuzzPackets.
const openPort = 41000

// openConnection opens a connection from openPort to a port of publicAddress, with the sequence number 100 of tcpSegment. It returns
// the sequence number of the other end.
func openConnection(t *testing.T, socket int, port uint16) uint32 {
	t.Helper()
	send := func(flags header.TCPFlags, sequence, acknowledged uint32) {
		p := packet(header.TCPProtocolNumber, publicAddress, tcpSegment(port, flags, ""))
		tcp := header.TCP(p[20:])
		tcp.SetSourcePort(openPort)
		tcp.SetSequenceNumber(sequence)
		tcp.SetAckNumber(acknowledged)
		fixChecksums(p)
		if _, err := unix.Write(socket, p); err != nil {
			t.Fatal(err)
		}
	}
	send(header.TCPFlagSyn, 100, 0)
	answer := make([]byte, 200)
	if n, err := unix.Read(socket, answer); err != nil || n < 40 || header.TCP(answer[20:]).Flags() != header.TCPFlagSyn|header.TCPFlagAck {
		t.Fatalf("answer %x, %v", answer[:n], err)
	}
	number := header.TCP(answer[20:]).SequenceNumber()
	send(header.TCPFlagAck, 101, number+1)
	return number
}

// newPacketComputer returns a computer that has a socket as its device, and the other end of the socket.
func newPacketComputer(t *testing.T, e *Egress) (c *computer, socket int) {
	t.Helper()
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(sockets[0], true); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(sockets[1], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	d, err := newDevice(sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	c = newComputer(t.Context(), e, "ws_1")
	if err := c.serveDevice(d); err != nil {
		t.Fatal(err)
	}
	return c, sockets[1]
}

// awaitEcho sends an echo request and waits for its answer.
func awaitEcho(t *testing.T, socket int) {
	t.Helper()
	if _, err := unix.Write(socket, echoRequest()); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64<<10)
	for start := time.Now(); ; {
		n, err := unix.Read(socket, buffer)
		if err != nil || time.Since(start) > 3*time.Minute {
			t.Fatal("the computer's network does not answer any more: ", err)
		}
		if n > 24 && buffer[9] == 1 && buffer[20] == 0 && bytes.HasSuffix(buffer[:n], []byte("last")) {
			return
		}
	}
}
