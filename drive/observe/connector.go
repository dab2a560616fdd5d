package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Constants of linux/connector.h and linux/cn_proc.h.
const (
	connectorProcesses = 1 // CN_IDX_PROC and CN_VAL_PROC
	listen             = 1 // PROC_CN_MCAST_LISTEN
	eventNone          = 0x0
	eventFork          = 0x1
	eventExit          = 0x80000000
	connectorHeader    = 20 // struct cn_msg without data
)

// socketBytes is the size of the socket's receive buffer. Each message takes about a kilobyte of it.
const socketBytes = 32 << 20

// A connector receives the forks and exits of all processes of the machine from the kernel's process connector.
type connector struct {
	fd     int
	buffer []byte
}

// openConnector subscribes to the process connector. It returns an error if the kernel has none, or refuses, as it does
// outside of the first process namespace and without the right to administer the network.
func openConnector() (*connector, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_CONNECTOR)
	if err != nil {
		return nil, fmt.Errorf("open the process connector: %w", err)
	}
	c := &connector{fd: fd, buffer: make([]byte, 64<<10)}
	if err := c.subscribe(); err != nil {
		c.close()
		return nil, fmt.Errorf("subscribe to the process connector: %w", err)
	}
	return c, nil
}

// subscribe asks for all events, which the kernel answers, and then for forks and exits only. A kernel before 6.6 ignores the
// second request.
func (c *connector) subscribe() error {
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: connectorProcesses}); err != nil {
		return err
	}
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBytes) != nil {
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, socketBytes); err != nil {
			return err
		}
	}
	var request []byte
	request = binary.NativeEndian.AppendUint32(request, listen)
	if err := c.send(request); err != nil {
		return err
	}
	if err := c.awaitAnswer(); err != nil {
		return err
	}
	return c.send(binary.NativeEndian.AppendUint32(request, eventFork|eventExit))
}

func (c *connector) send(request []byte) error {
	var m []byte
	m = binary.NativeEndian.AppendUint32(m, uint32(unix.NLMSG_HDRLEN+connectorHeader+len(request)))
	m = binary.NativeEndian.AppendUint16(m, unix.NLMSG_DONE)
	m = append(m, make([]byte, 10)...) // flags, sequence number and port of the netlink header
	m = binary.NativeEndian.AppendUint32(m, connectorProcesses)
	m = binary.NativeEndian.AppendUint32(m, connectorProcesses)
	m = append(m, make([]byte, 8)...) // sequence number and acknowledgement
	m = binary.NativeEndian.AppendUint16(m, uint16(len(request)))
	m = append(m, 0, 0)
	return unix.Sendto(c.fd, append(m, request...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// awaitAnswer waits for the answer to a request and returns the error that it has. It returns an error after a second.
func (c *connector) awaitAnswer() error {
	for end := time.Now().Add(time.Second); ; {
		left := time.Until(end)
		if left <= 0 {
			return errors.New("the kernel does not answer")
		}
		ready := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(ready, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		answered, failure := false, error(nil)
		err := c.drain(func(e processEvent) {
			if e.kind == eventNone {
				answered, failure = true, e.failure()
			}
		})
		if answered || err != nil && !errors.Is(err, errMissedForks) {
			return errors.Join(failure, err)
		}
	}
}

func (c *connector) close() { _ = unix.Close(c.fd) } // the kernel removes the subscription

// A processEvent is a fork or an exit. Process and parent are ids of processes, thread is the id of the thread that began or
// ended.
type processEvent struct {
	kind                    uint32
	process, thread, parent int32
	answer                  uint32
}

func (e processEvent) failure() error {
	if e.answer == 0 {
		return nil
	}
	return unix.Errno(e.answer)
}

// errMissedForks means that the socket's buffer was full, so that the kernel has dropped messages.
var errMissedForks = errors.New("forks of processes were missed")

// drain calls visit with all messages that have arrived. It returns errMissedForks, after it has read the messages that are
// left.
func (c *connector) drain(visit func(processEvent)) error {
	var missed error
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buffer, 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return missed
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ENOBUFS):
			missed = errMissedForks
		case err != nil:
			return fmt.Errorf("read the process connector: %w", err)
		default:
			visitMessages(c.buffer[:n], visit)
		}
	}
}

// visitMessages calls visit with the messages of a datagram, except of kinds that are not used.
func visitMessages(data []byte, visit func(processEvent)) {
	for len(data) >= unix.NLMSG_HDRLEN {
		length := int(binary.NativeEndian.Uint32(data))
		if length < unix.NLMSG_HDRLEN || length > len(data) {
			return
		}
		if body := data[unix.NLMSG_HDRLEN:length]; len(body) >= connectorHeader+16+16 {
			if e, ok := parseProcessEvent(body[connectorHeader:]); ok {
				visit(e)
			}
		}
		data = data[min((length+3)&^3, len(data)):]
	}
}

// parseProcessEvent reads a struct proc_event: kind, processor, 8 bytes of time, and fields that depend on the kind.
func parseProcessEvent(data []byte) (processEvent, bool) {
	e := processEvent{kind: binary.NativeEndian.Uint32(data)}
	field := func(i int) int32 { return int32(binary.NativeEndian.Uint32(data[16+4*i:])) }
	switch e.kind {
	case eventNone:
		e.answer = uint32(field(0))
	case eventFork:
		e.parent, e.thread, e.process = field(1), field(2), field(3)
	case eventExit:
		e.thread, e.process = field(0), field(1)
	default:
		return e, false
	}
	return e, true
}
