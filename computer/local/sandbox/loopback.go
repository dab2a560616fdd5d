package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dial connects to a port of the loopback interface in the background, and passes the connection to the server. files has the
// namespace of a process's own network, and is empty for the network of the computer.
func (p *initProcess) dial(r request, files []*os.File) error {
	select {
	case p.dials <- struct{}{}:
	default:
		return p.server.send(event{Event: eventAnswered, Call: r.Call, Error: "too many connections are being made"})
	}
	var sockets []loopbackSocket
	err := p.inNetwork(files, func() (err error) {
		sockets, err = openLoopbackSockets(r.Port)
		return err
	})
	go func() {
		defer func() { <-p.dials }()
		var connected *os.File
		if err == nil {
			connected, err = connectOne(sockets)
		}
		if err != nil {
			_ = p.server.send(event{Event: eventAnswered, Call: r.Call, Error: err.Error()})
			return
		}
		_ = p.server.send(event{Event: eventAnswered, Call: r.Call}, connected)
		_ = connected.Close()
	}()
	return nil
}

// inNetwork calls f in the network with the namespace in files, or in the network of the computer if files is empty.
func (p *initProcess) inNetwork(files []*os.File, f func() error) error {
	switch len(files) {
	case 0:
		return p.networks.do(nil, f)
	case 1:
		return p.networks.do(files[0], f)
	default:
		return fmt.Errorf("a network was named by %d files", len(files))
	}
}

// A loopbackSocket is a socket and the address that it is to be connected to.
type loopbackSocket struct {
	file    *os.File
	address unix.Sockaddr
}

// openLoopbackSockets returns sockets of the calling thread's network: for 127.0.0.1, and for ::1 if the kernel has IPv6. Programs
// that listen on "localhost" may have either address only.
func openLoopbackSockets(port int) ([]loopbackSocket, error) {
	const kind = unix.SOCK_STREAM | unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC
	fd, err := unix.Socket(unix.AF_INET, kind, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	all := []loopbackSocket{{os.NewFile(uintptr(fd), "127.0.0.1"), &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}}}
	if fd, err = unix.Socket(unix.AF_INET6, kind, 0); err == nil {
		all = append(all, loopbackSocket{os.NewFile(uintptr(fd), "::1"), &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}}})
	}
	return all, nil
}

// connectOne returns the first of the sockets that can be connected, and closes the others. It returns the error of the first if
// none can.
func connectOne(sockets []loopbackSocket) (connected *os.File, err error) {
	for _, one := range sockets {
		if connected == nil {
			failed := one.connect()
			if failed == nil {
				connected = one.file
				continue
			}
			if err == nil {
				err = fmt.Errorf("connect to %s: %w", one.file.Name(), failed)
			}
		}
		_ = one.file.Close()
	}
	if connected != nil {
		return connected, nil
	}
	return nil, err
}

// connect connects the socket within dialTimeout.
func (s loopbackSocket) connect() error {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	if err := s.file.SetWriteDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	begun := false
	waitErr := raw.Write(func(fd uintptr) (done bool) {
		if !begun {
			begun, err = true, unix.Connect(int(fd), s.address)
			return !errors.Is(err, unix.EINPROGRESS)
		}
		number, failed := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case failed != nil:
			err = failed
		case number != 0:
			err = unix.Errno(number)
		default:
			// A socket that is not yet connected is also reported as writable.
			_, err = unix.Getpeername(int(fd))
			return err == nil
		}
		return true
	})
	if waitErr != nil {
		return waitErr
	}
	return err
}

// listen listens on a port of the loopback interface, and passes the socket to the server. files is as for dial.
func (p *initProcess) listen(r request, files []*os.File) error {
	var file *os.File
	err := p.inNetwork(files, func() error {
		l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: r.Port})
		if err != nil {
			return err
		}
		defer l.Close()
		file, err = l.File()
		return err
	})
	if err != nil {
		return p.server.send(event{Event: eventAnswered, Call: r.Call, Error: err.Error()})
	}
	defer file.Close()
	return p.server.send(event{Event: eventAnswered, Call: r.Call}, file)
}
