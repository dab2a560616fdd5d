package egress

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// runComputer is the first process of a computer: it prepares its network namespace, passes the files through the socket 3, and
// copies between its standard streams and the address in its arguments.
func runComputer() error {
	link, network, address := guest.Link(os.Args[1]), os.Args[2], os.Args[3]
	files, err := guest.PrepareNamespace(link, guest.Device)
	if err != nil {
		return err
	}
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if err := unix.Sendmsg(3, []byte("x"), unix.UnixRights(fds...), nil, 0); err != nil {
		return err
	}
	for _, f := range files {
		f.Close()
	}
	if _, err := unix.Read(3, make([]byte, 1)); err != nil { // until the server has attached them
		return err
	}
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).Dial(network, address)
	if err != nil {
		return err
	}
	sent, err := io.Copy(conn, os.Stdin)
	if err != nil {
		return fmt.Errorf("after %d bytes: %w", sent, err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// receiveFile returns the file that a process has sent through a socket.
func receiveFile(t *testing.T, socket int) *os.File {
	t.Helper()
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), control, 0)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		t.Fatal("no file was received: ", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	unix.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "received")
}

// TestProcess connects from another process, which passes its files to the server, with and without a user namespace of its own.
func TestProcess(t *testing.T) {
	requireNamespaces(t)
	for _, inUser := range []bool{false, true} {
		for _, mode := range []string{"on", "proxy"} {
			t.Run(fmt.Sprintf("%s, user namespace %v", mode, inUser), func(t *testing.T) {
				server := listen(t, publicAddress, echo)
				m, address := On, server
				if mode == "on" {
					requireTUN(t)
				} else { // each protocol passes on the bytes in the same way
					var err error
					if m, err = Parse("socks5://" + server); err != nil {
						t.Fatal(err)
					}
					address = guest.ProxyAddress.String()
				}
				sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				ours, theirs := sockets[0], os.NewFile(uintptr(sockets[1]), "socket")
				defer unix.Close(ours)
				content := random(3 << 20)
				var out, stderr bytes.Buffer
				c := reexec(t.Context(), inUser, "computer", string(m.Link()), "tcp", address)
				c.Stdin, c.Stdout, c.Stderr, c.ExtraFiles = bytes.NewReader(content), &out, &stderr, []*os.File{theirs}
				c.SysProcAttr.Pdeathsig = 0 // the thread that starts it ends early
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				theirs.Close()
				e := newEgress(t, Options{Mode: m})
				stop, err := e.Attach(context.Background(), "ws_1", []*os.File{receiveFile(t, ours)})
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				if _, err := unix.Write(ours, []byte("x")); err != nil {
					t.Fatal(err)
				}
				if err := c.Wait(); err != nil || !bytes.Equal(out.Bytes(), content) {
					t.Errorf("%v: %d bytes came back\n%s", err, out.Len(), stderr.Bytes())
				}
			})
		}
	}
}

// TestUserNamespace runs tests in which the server has no privileges outside of a user namespace.
func TestUserNamespace(t *testing.T) {
	requireTUN(t)
	c := reexec(t.Context(), true, "node", "-test.run=^(TestTCP|TestUDP|TestDNS|TestRefused|TestProxy)$", "-test.v")
	c.SysProcAttr.Pdeathsig = 0
	c.Stdin, c.Stdout, c.Stderr = nil, nil, nil
	out, err := c.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("--- SKIP")) || !bytes.Contains(out, []byte("--- PASS: TestTCP/ipv4")) {
		t.Errorf("%v\n%s", err, out)
	}
}
