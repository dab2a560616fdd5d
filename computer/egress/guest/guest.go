// Package guest prepares the network namespace of a computer from inside of it, and opens the files through which package
// egress serves it. It depends on nothing but the kernel, because it runs in the first process of each computer.
package guest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/egress/internal/rtnetlink"
)

// A Link is the connection of a computer's network namespace with the server.
type Link string

// The links.
const (
	// NoLink: the computer has its loopback interface only.
	NoLink Link = "none"
	// TUN: the computer has an interface, and the server reads and writes its packets.
	TUN Link = "tun"
	// Proxy: the server accepts the connections to ProxyAddress.
	Proxy Link = "proxy"
)

const (
	// Interface is the name of the interface of the link TUN.
	Interface = "net0"
	// MTU is the MTU of the interface. It is that large because each packet costs the same, and because no packet leaves the
	// machine: the server ends all connections and opens its own.
	MTU = 32 << 10
	// Device is the path of the device that makes the link TUN.
	Device = "/dev/net/tun"
)

// The addresses of a computer with a link.
var (
	// Gateway is the address of the server in the computer, which answers DNS and echo requests. It and Address are of the
	// network that RFC 7335 reserves for the two ends of such a link.
	Gateway = netip.MustParseAddr("192.0.0.1")
	Address = netip.MustParseAddr("192.0.0.2")
	// Address6 is a unique local address (RFC 4193).
	Address6 = netip.MustParseAddr("fd61:7465:6c69:6572::2")
	// ProxyAddress is where the processes of a computer reach the proxy.
	ProxyAddress = netip.MustParseAddrPort("127.0.0.1:3128")
)

// PrepareNamespace brings up the loopback interface of the calling thread's network namespace and creates the link. It returns the
// files that the caller passes to egress.Attach, and then closes; without a link there are none. It must be called with CAP_NET_ADMIN
// in the user namespace that owns the network namespace, and before any process of the workspace runs in it. device is the path of
// Device, or its replacement where /dev has been replaced. If PrepareNamespace fails, the namespace must not be used.
func PrepareNamespace(link Link, device string) ([]*os.File, error) {
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		return nil, fmt.Errorf("guest: find the loopback interface: %w", err)
	}
	if err := rtnetlink.SetUp(loopback.Index, 0); err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	var file *os.File
	switch link {
	case NoLink:
		return nil, nil
	case TUN:
		file, err = openTUN(device)
	case Proxy:
		file, err = listen()
	default:
		return nil, fmt.Errorf("guest: unknown link %q", link)
	}
	if err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	return []*os.File{file}, nil
}

// listen returns a socket that listens on ProxyAddress.
func listen() (*os.File, error) {
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(ProxyAddress))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.File()
}

// openTUN creates the interface with its addresses and routes. The interface exists until the file is closed.
func openTUN(path string) (_ *os.File, err error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open "+Device+", which the server needs in order to give computers a network: %w; "+
			"load the kernel module tun and let the server's user read and write the device, or let computers use a proxy", err)
	}
	file := os.NewFile(uintptr(fd), Device)
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	request, err := unix.NewIfreq(Interface)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("create the interface %s: %w", Interface, err)
	}
	created, err := net.InterfaceByName(Interface)
	if err != nil {
		return nil, err
	}
	if err := rtnetlink.SetUp(created.Index, MTU); err != nil {
		return nil, err
	}
	if err := addRoutes(created.Index); err != nil {
		return nil, err
	}
	return file, nil
}

// addRoutes gives the interface its addresses and the default routes, without IPv6 if the kernel has none.
func addRoutes(index int) error {
	for _, address := range []netip.Addr{Address, Address6} {
		err := rtnetlink.AddAddress(index, netip.PrefixFrom(address, address.BitLen()))
		if err == nil && address.Is6() {
			err = rtnetlink.AddLocalRoute(index, address)
		}
		if err == nil {
			err = rtnetlink.AddDefaultRoute(index, address)
		}
		isMissing := errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EACCES)
		if err != nil && !(address.Is6() && isMissing) {
			return err
		}
	}
	return nil
}
