package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

func TestStop(t *testing.T) {
	for _, mode := range []string{"on", "proxy"} {
		t.Run(mode, func(t *testing.T) {
			ns := newNamespace(t)
			serverErrors := make(chan error, 2)
			server := listen(t, publicAddress, func(conn *net.TCPConn) {
				_, _ = conn.Write([]byte("x"))
				_, err := io.ReadAll(conn)
				serverErrors <- err
			})
			o, address := Options{Mode: On}, server
			if mode == "proxy" {
				o.Mode, _ = Parse("http://" + server)
				address = guest.ProxyAddress.String()
			}
			e := newEgress(t, o)
			stop := attach(t, e, ns)
			conns := []net.Conn{ns.mustDial(t, "tcp", address), ns.mustDial(t, "tcp", address)}
			if mode == "on" {
				if _, err := ns.mustDial(t, "udp", udpEcho(t, publicAddress)).Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				eventually(t, "all flows are open", func() bool { return metric(t, e, "flows", "") == 3 })
			}
			for _, conn := range conns {
				if _, err := conn.Read(make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			stop()
			stop()
			if flows, computers := metric(t, e, "flows", ""), metric(t, e, "computers", ""); flows != 0 || computers != 0 {
				t.Errorf("%v flows of %v computers are left", flows, computers)
			}
			for range conns {
				if err := <-serverErrors; !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the server reads %v", err)
				}
			}
			if mode == "proxy" {
				if _, err := conns[0].Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the computer reads %v", err)
				}
				if _, err := ns.dial(t.Context(), "tcp", address); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("dial the proxy: %v", err)
				}
				return
			}
			eventually(t, "the interface is removed", func() (removed bool) {
				ns.do(func() {
					_, err := net.InterfaceByName(guest.Interface)
					removed = err != nil
				})
				return removed
			})
			if _, err := ns.dial(t.Context(), "tcp", server); !errors.Is(err, syscall.ENETUNREACH) {
				t.Errorf("dial: %v", err)
			}
		})
	}
}

// TestStopWhileConnectionsOpen stops computers at any moment of opening connections, and finds no file left open.
func TestStopWhileConnectionsOpen(t *testing.T) {
	requireTUN(t)
	server := listen(t, publicAddress, echo)
	// The files do not include the pipes that the test's server copies through.
	openFiles := func() (count int) {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			target, _ := os.Readlink("/proc/self/fd/" + file.Name())
			if strings.HasPrefix(target, "socket:") || target == "/dev/net/tun" {
				count++
			}
		}
		return count
	}
	before, goroutines := openFiles(), runtime.NumGoroutine()
	for range 10 {
		t.Run("", func(t *testing.T) {
			ns := newNamespace(t)
			e := newEgress(t, Options{Mode: On})
			ctx, cancel := context.WithCancel(context.Background())
			var files []*os.File
			var err error
			ns.do(func() { files, err = guest.PrepareNamespace(guest.TUN, guest.Device) })
			if err != nil {
				t.Fatal(err)
			}
			stop, err := e.Attach(ctx, "ws_1", files)
			if err != nil {
				t.Fatal(err)
			}
			dialing, stopDialing := context.WithCancel(t.Context())
			opened := make(chan struct{})
			go func() {
				defer close(opened)
				for {
					conn, err := ns.dial(dialing, "tcp", server)
					if err != nil {
						return
					}
					conn.Close()
				}
			}()
			eventually(t, "connections are open", func() bool { return metric(t, e, "flows_opened_total", "tcp") > 3 })
			cancel()
			stop()
			stopDialing()
			<-opened
		})
	}
	eventually(t, "all files are closed", func() bool { return openFiles() <= before })
	eventually(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines })
}

// TestStopDuringHandshake stops a computer that does not answer when its connection is accepted.
func TestStopDuringHandshake(t *testing.T) {
	requireNamespaces(t)
	e := newEgress(t, Options{})
	c, socket := newPacketComputer(t, e)
	defer unix.Close(socket)
	port := netip.MustParseAddrPort(listen(t, publicAddress, echo)).Port()
	syn := packet(header.TCPProtocolNumber, publicAddress, tcpSegment(port, header.TCPFlagSyn, ""))
	fixChecksums(syn)
	if _, err := unix.Write(socket, syn); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 100)
	if n, err := unix.Read(socket, answer); err != nil || n < 40 || header.TCP(answer[20:]).Flags() != header.TCPFlagSyn|header.TCPFlagAck {
		t.Fatalf("answer %x, %v", answer[:n], err)
	}
	c.stop()
	if flows := metric(t, e, "flows", ""); flows != 0 {
		t.Errorf("%v flows are left", flows)
	}
}

// TestQueriesOfAnEndedLink checks that queries that arrive when their link ends take nothing from the other links of the computer.
func TestQueriesOfAnEndedLink(t *testing.T) {
	e := newEgress(t, Options{})
	kept, ended := newComputer(t.Context(), e, "ws_1"), newComputer(t.Context(), e, "ws_1")
	defer kept.stop()
	ended.stop()
	d := &dns{ended}
	d.answerPacket([]byte("query"), func([]byte) { t.Error("a query of an ended link is answered") })
	client, conn := net.Pipe()
	defer client.Close()
	d.serveConnection(conn)
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the connection of an ended link: %v", err)
	}
	if queries, connections := len(kept.budget.queries), len(kept.budget.queryConnections); queries+connections > 0 {
		t.Errorf("%d queries and %d connections for queries are still counted", queries, connections)
	}
}

func TestAttachRefusesOtherFiles(t *testing.T) {
	other, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		mode  Mode
		files []*os.File
	}{
		"off": {Off, []*os.File{other}}, "on": {On, []*os.File{other}}, "on without": {On, nil}, "proxy": {proxy, []*os.File{other}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEgress(t, Options{Mode: test.mode})
			if _, err := e.Attach(t.Context(), "ws_1", test.files); err == nil {
				t.Error("no error")
			}
			if computers := metric(t, e, "computers", ""); computers != 0 {
				t.Errorf("%v computers are attached", computers)
			}
		})
	}
	if stop, err := newEgress(t, Options{}).Attach(t.Context(), "ws_1", nil); err != nil {
		t.Error("attach a computer without a network: ", err)
	} else {
		stop()
	}
}
