package egress

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// A device is the TUN device of a computer, a link of the userspace network stack. A read or write is one IP packet. It is waited
// for by the runtime's poller, so that a computer does not occupy a thread.
type device struct {
	file *os.File
	raw  syscall.RawConn
	// dispatcher gets the packets that the computer sends; nil while the device is not attached to a stack.
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
}

// openDevice returns a device with a duplicate of a file of a TUN device. It returns an error if the file is of another kind.
func openDevice(file *os.File) (*device, error) {
	fd, err := duplicate(file)
	if err != nil {
		return nil, err
	}
	var request unix.Ifreq
	if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, &request); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("the file is not a TUN device: %w", err)
	}
	if flags := request.Uint16(); flags&(unix.IFF_TUN|unix.IFF_NO_PI|unix.IFF_VNET_HDR) != unix.IFF_TUN|unix.IFF_NO_PI {
		unix.Close(fd)
		return nil, fmt.Errorf("the TUN device has the flags %#x, which package guest does not set", flags)
	}
	return newDevice(fd)
}

// newDevice returns a device with a non-blocking descriptor. Each read and write of the device is one packet.
func newDevice(fd int) (*device, error) {
	file := os.NewFile(uintptr(fd), "tun")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &device{file: file, raw: raw}, nil
}

// duplicate returns a non-blocking duplicate of a file's descriptor.
func duplicate(file *os.File) (fd int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return -1, err
	}
	controlErr := raw.Control(func(original uintptr) {
		if fd, err = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return
		}
		if err = unix.SetNonblock(fd, true); err != nil {
			unix.Close(fd)
		}
	})
	if controlErr != nil {
		err = controlErr
	}
	return fd, os.NewSyscallError("duplicate the file of the device", err)
}

// readPackets passes the computer's packets to the stack until the device is closed or removed, and returns why.
func (d *device) readPackets() error {
	packet := make([]byte, 64<<10)
	for {
		n, err := d.file.Read(packet)
		if err != nil {
			return err
		}
		d.deliver(packet[:n])
	}
}

// deliver passes a copy of a packet to the stack, so that a queue of small packets does not hold large buffers. It drops
// packets that are neither IPv4 nor IPv6.
func (d *device) deliver(packet []byte) {
	dispatcher := d.dispatcher.Load()
	if dispatcher == nil {
		return
	}
	var protocol tcpip.NetworkProtocolNumber
	switch header.IPVersion(packet) {
	case header.IPv4Version:
		protocol = ipv4.ProtocolNumber
	case header.IPv6Version:
		protocol = ipv6.ProtocolNumber
	default:
		return
	}
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(packet)})
	defer p.DecRef()
	(*dispatcher).DeliverNetworkPacket(protocol, p)
}

// WritePackets implements stack.LinkWriter. It does not block: a packet that the computer's kernel does not take is lost.
func (d *device) WritePackets(packets stack.PacketBufferList) (written int, _ tcpip.Error) {
	err := d.raw.Control(func(fd uintptr) {
		for _, p := range packets.AsSlice() {
			_, _ = unix.Writev(int(fd), p.AsSlices())
			written++
		}
	})
	if err != nil {
		return written, &tcpip.ErrClosedForSend{}
	}
	return written, nil
}

// Close implements stack.NetworkLinkEndpoint. It may be called more than once.
func (d *device) Close() { d.file.Close() }

// Attach implements stack.NetworkLinkEndpoint.
func (d *device) Attach(dispatcher stack.NetworkDispatcher) {
	if dispatcher == nil {
		d.dispatcher.Store(nil)
		return
	}
	d.dispatcher.Store(&dispatcher)
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (d *device) IsAttached() bool { return d.dispatcher.Load() != nil }

// MTU implements stack.NetworkLinkEndpoint.
func (*device) MTU() uint32 { return guest.MTU }

// SetMTU implements stack.NetworkLinkEndpoint. It does nothing: the interface of the computer has this MTU.
func (*device) SetMTU(uint32) {}

// MaxHeaderLength implements stack.NetworkLinkEndpoint. The device has no header, nor addresses or capabilities.
func (*device) MaxHeaderLength() uint16 { return 0 }

// LinkAddress implements stack.NetworkLinkEndpoint.
func (*device) LinkAddress() tcpip.LinkAddress { return "" }

// SetLinkAddress implements stack.NetworkLinkEndpoint.
func (*device) SetLinkAddress(tcpip.LinkAddress) {}

// Capabilities implements stack.NetworkLinkEndpoint.
func (*device) Capabilities() stack.LinkEndpointCapabilities { return 0 }

// Wait implements stack.NetworkLinkEndpoint. The device has no goroutines.
func (*device) Wait() {}

// ARPHardwareType implements stack.NetworkLinkEndpoint.
func (*device) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }

// AddHeader implements stack.NetworkLinkEndpoint.
func (*device) AddHeader(*stack.PacketBuffer) {}

// ParseHeader implements stack.NetworkLinkEndpoint.
func (*device) ParseHeader(*stack.PacketBuffer) bool { return true }

// SetOnCloseAction implements stack.NetworkLinkEndpoint. The stack calls it for devices that it creates.
func (*device) SetOnCloseAction(func()) {}
