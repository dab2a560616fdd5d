package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/computer/egress/guest"
	"github.com/atelier-run/atelier/computer/egress/internal/rtnetlink"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// The tests run in a network namespace of their own, the node's, in which the addresses below lead to the test. Threads in
// other namespaces are the computers.
const (
	publicAddress   = "93.184.215.14"
	publicAddress6  = "2606:2800:21f:cb07::14"
	privateAddress  = "10.20.0.1"
	metadataAddress = "169.254.169.254"
	// ownAddress is public, but known as an address of the node.
	ownAddress = "93.184.215.15"
)

// roleVariable tells a process of the test its role: empty, "node", or "computer".
const roleVariable = "ATELIER_EGRESS_TEST_ROLE"

// errNotIsolated says why the process has no network namespace of its own; nil: it has.
var errNotIsolated error

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(runNode(m))
	case "node":
		if err := prepareNode(); err != nil {
			fmt.Fprintln(os.Stderr, "prepare the network namespace of the test:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	case "computer":
		if err := runComputer(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// runNode runs the tests in a child with a network namespace, or in this process if it must not create one.
func runNode(m *testing.M) int {
	runtime.LockOSThread() // the child is killed with the thread that starts it
	child := reexec(context.Background(), os.Geteuid() != 0, "node", os.Args[1:]...)
	if errNotIsolated = child.Start(); errNotIsolated != nil {
		return m.Run()
	}
	var exit *exec.ExitError
	switch err := child.Wait(); {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1)
	case err != nil:
		return 1
	}
	return 0
}

// reexec returns a command that runs this program in a new network namespace and, if inUser, a new user namespace.
func reexec(ctx context.Context, inUser bool, role string, arguments ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "/proc/self/exe", arguments...)
	c.Env = append(os.Environ(), roleVariable+"="+role)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if inUser {
		c.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return c
}

// prepareNode gives the loopback interface the addresses of the test.
func prepareNode() error {
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		return err
	}
	if err := rtnetlink.SetUp(loopback.Index, 0); err != nil {
		return err
	}
	for _, text := range []string{publicAddress, publicAddress6, privateAddress, metadataAddress, ownAddress} {
		address := netip.MustParseAddr(text)
		err := rtnetlink.AddAddress(loopback.Index, netip.PrefixFrom(address, address.BitLen()))
		if err != nil && !errors.Is(err, os.ErrExist) { // a process of a fuzz test is in the namespace of its parent
			return err
		}
	}
	return nil
}

// requireNamespaces skips a test that needs network namespaces if the process must not create any.
func requireNamespaces(t testing.TB) {
	t.Helper()
	if errNotIsolated != nil {
		testmachine.Lacks(t, "the test needs network namespaces: "+errNotIsolated.Error())
	}
}

// requireTUN skips a test that needs TUN devices if the process must not create any.
func requireTUN(t testing.TB) {
	t.Helper()
	requireNamespaces(t)
	device, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		testmachine.Lacks(t, "the test needs TUN devices: "+err.Error())
	}
	device.Close()
}

// A namespace is the network namespace of a computer. Its calls run one after the other on a thread in it; the sockets that they
// return belong to it wherever they are used.
type namespace struct{ calls chan func() }

func newNamespace(t testing.TB) *namespace {
	t.Helper()
	requireNamespaces(t)
	ns, entered := &namespace{make(chan func())}, make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		entered <- err
		if err != nil {
			return
		}
		for call := range ns.calls {
			call()
		}
	}()
	if err := <-entered; err != nil {
		t.Fatal("create a network namespace: ", err)
	}
	t.Cleanup(func() { close(ns.calls) })
	return ns
}

func (ns *namespace) do(f func()) {
	done := make(chan struct{})
	ns.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// dial connects from the computer.
func (ns *namespace) dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	ns.do(func() { conn, err = new(net.Dialer).DialContext(ctx, network, address) })
	return conn, err
}

// mustDial connects from the computer, and closes the connection at the end of the test.
func (ns *namespace) mustDial(t testing.TB, network, address string) net.Conn {
	t.Helper()
	conn, err := ns.dial(t.Context(), network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(3 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// newEgress returns an Egress that does not know the addresses of the test, except for ownAddress, as addresses of the node.
func newEgress(t testing.TB, o Options) *Egress {
	t.Helper()
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	e.own.read = func() ([]net.Addr, error) {
		all, err := net.InterfaceAddrs()
		var own []net.Addr
		for _, address := range all {
			switch ip, _, _ := strings.Cut(address.String(), "/"); ip {
			case publicAddress, publicAddress6, privateAddress, metadataAddress:
			default:
				own = append(own, address)
			}
		}
		return own, err
	}
	return e
}

// attach prepares the namespace of the computer ws_1 and attaches it.
func attach(t testing.TB, e *Egress, ns *namespace) (stop func()) {
	t.Helper()
	return attachTo(t, e, ns, "ws_1")
}

// attachTo prepares a namespace of a workspace's computer and attaches it.
func attachTo(t testing.TB, e *Egress, ns *namespace, workspaceID string) (stop func()) {
	t.Helper()
	if e.Link() == guest.TUN {
		requireTUN(t)
	}
	var files []*os.File
	var err error
	ns.do(func() { files, err = guest.PrepareNamespace(e.Link(), guest.Device) })
	if err != nil {
		t.Fatal(err)
	}
	stop, err = e.Attach(context.Background(), workspaceID, files)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return stop
}

// newTestComputer returns the namespace of a computer with the mode On.
func newTestComputer(t testing.TB, o Options) (*namespace, *Egress) {
	t.Helper()
	ns := newNamespace(t)
	o.Mode = On
	e := newEgress(t, o)
	attach(t, e, ns)
	return ns, e
}

// listen serves each connection to a free port of an address in a goroutine, and returns the address with the port.
func listen(t testing.TB, address string, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn.(*net.TCPConn))
			}()
		}
	}()
	return l.Addr().String()
}

// echo sends back the bytes that it receives.
func echo(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }

// metric returns the sum of the values of a metric with a label that contains a value; an empty value sums all.
func metric(t testing.TB, e *Egress, name, label string) (sum float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(e)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			matches := label == ""
			for _, pair := range m.GetLabel() {
				matches = matches || pair.GetValue() == label
			}
			if family.GetName() == "atelier_egress_"+name && matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// eventually waits until a condition holds. No event announces the change of the condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	late := time.After(3 * time.Minute)
	for !holds() {
		select {
		case <-again.C:
		case <-late:
			t.Fatal("this does not happen: ", what)
		}
	}
}
