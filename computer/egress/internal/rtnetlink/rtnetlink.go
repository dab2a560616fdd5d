// Package rtnetlink configures the interfaces of the network namespace of the calling thread through the kernel's routing
// socket (rtnetlink(7)). Each function sends one request and returns the kernel's answer. The caller needs CAP_NET_ADMIN in the
// user namespace that owns the network namespace.
package rtnetlink

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// SetUp sets the MTU of an interface and brings it up. An mtu of 0 leaves the MTU as it is.
func SetUp(index, mtu int) error {
	request := message(unix.RTM_NEWLINK, 0, unix.IfInfomsg{Index: int32(index), Flags: unix.IFF_UP, Change: unix.IFF_UP})
	if mtu > 0 {
		request = attribute(request, unix.IFLA_MTU, binary.NativeEndian.AppendUint32(nil, uint32(mtu)))
	}
	return os.NewSyscallError("rtnetlink: bring the interface up", send(request))
}

// AddAddress adds an address to an interface. Duplicate address detection is not done. It returns an error that is os.ErrExist
// if the interface has the address.
func AddAddress(index int, address netip.Prefix) error {
	header := unix.IfAddrmsg{Family: family(address.Addr()), Prefixlen: uint8(address.Bits()), Flags: unix.IFA_F_NODAD, Index: uint32(index)}
	request := message(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, header)
	request = attribute(request, unix.IFA_LOCAL, address.Addr().AsSlice())
	request = attribute(request, unix.IFA_ADDRESS, address.Addr().AsSlice())
	return os.NewSyscallError("rtnetlink: add "+address.String(), send(request))
}

// AddDefaultRoute sends all packets of the family of source without a better route through an interface. The packets get the source
// address source unless the socket is bound to a different address.
func AddDefaultRoute(index int, source netip.Addr) error {
	header := unix.RtMsg{Table: unix.RT_TABLE_MAIN, Type: unix.RTN_UNICAST}
	request := attribute(route(index, header, source), unix.RTA_PREFSRC, source.AsSlice())
	return os.NewSyscallError("rtnetlink: add the default route from "+source.String(), send(request))
}

// AddLocalRoute makes the kernel accept packets to an address of an interface. AddAddress does so too, but for IPv6 some time after
// it has returned.
func AddLocalRoute(index int, address netip.Addr) error {
	header := unix.RtMsg{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Dst_len: uint8(address.BitLen())}
	request := attribute(route(index, header, address), unix.RTA_DST, address.AsSlice())
	return os.NewSyscallError("rtnetlink: add the local route to "+address.String(), send(request))
}

// route returns the request for a new route of the family of address.
func route(index int, header unix.RtMsg, address netip.Addr) []byte {
	header.Family, header.Protocol, header.Scope = family(address), unix.RTPROT_STATIC, unix.RT_SCOPE_UNIVERSE
	request := message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL, header)
	return attribute(request, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(index)))
}

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// message returns a request. send sets the length of the request.
func message(kind, flags uint16, header any) []byte {
	var b bytes.Buffer
	nl := unix.NlMsghdr{Type: kind, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK | flags, Seq: 1}
	for _, part := range []any{nl, header} {
		if err := binary.Write(&b, binary.NativeEndian, part); err != nil {
			panic(err) // part has no fixed size
		}
	}
	return b.Bytes()
}

func attribute(request []byte, kind uint16, value []byte) []byte {
	request = binary.NativeEndian.AppendUint16(request, uint16(unix.SizeofRtAttr+len(value)))
	request = binary.NativeEndian.AppendUint16(request, kind)
	request = append(request, value...)
	for len(request)%unix.NLMSG_ALIGNTO != 0 {
		request = append(request, 0)
	}
	return request
}

// send sends a request and returns the error number of the kernel's answer.
func send(request []byte) error {
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil || len(messages) == 0 || messages[0].Header.Type != unix.NLMSG_ERROR || len(messages[0].Data) < 4 {
		return fmt.Errorf("the kernel's answer of %d bytes is malformed: %w", n, unix.EBADMSG)
	}
	if number := int32(binary.NativeEndian.Uint32(messages[0].Data)); number != 0 {
		return unix.Errno(-number)
	}
	return nil
}
