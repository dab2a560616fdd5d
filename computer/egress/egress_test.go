package egress

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"
)

// random returns the same random bytes at each call.
func random(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	return content
}

// TestTCP sends large data both ways at the same time, and ends one direction before the other.
func TestTCP(t *testing.T) {
	const size = 8 << 20
	content := random(size)
	for name, address := range map[string]string{"ipv4": publicAddress, "ipv6": publicAddress6} {
		t.Run(name, func(t *testing.T) {
			ns, e := newTestComputer(t, Options{})
			hash := make(chan [32]byte, 1)
			server := listen(t, address, func(conn *net.TCPConn) {
				go func() {
					_, _ = conn.Write(content)
				}()
				h := sha256.New()
				_, _ = io.Copy(h, conn) // until the computer has sent its end
				hash <- [32]byte(h.Sum(nil))
				_, _ = conn.Write([]byte("the end"))
			})
			conn := ns.mustDial(t, "tcp", server).(*net.TCPConn)
			sent := make(chan error, 1)
			go func() {
				_, err := conn.Write(content)
				sent <- errors.Join(err, conn.CloseWrite())
			}()
			received, err := io.ReadAll(conn)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(received[:size], content) || string(received[size:]) != "the end" {
				t.Errorf("the computer received %d bytes, which are not those sent", len(received))
			}
			if <-hash != sha256.Sum256(content) {
				t.Error("the server did not receive the bytes sent")
			}
			eventually(t, "the flow ends", func() bool { return metric(t, e, "flows", "tcp") == 0 })
			if in, out := metric(t, e, "bytes_total", "in"), metric(t, e, "bytes_total", "out"); in != size+7 || out != size {
				t.Errorf("%v bytes in and %v out were counted", in, out)
			}
		})
	}
}

func TestTCPDestinationClosesFirst(t *testing.T) {
	ns, _ := newTestComputer(t, Options{})
	got := make(chan string, 1)
	server := listen(t, publicAddress, func(conn *net.TCPConn) {
		_ = conn.CloseWrite()
		all, _ := io.ReadAll(conn)
		got <- string(all)
	})
	conn := ns.mustDial(t, "tcp", server).(*net.TCPConn)
	if rest, err := io.ReadAll(conn); err != nil || len(rest) > 0 {
		t.Fatalf("read %q, %v", rest, err)
	}
	if _, err := conn.Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if all := <-got; all != "still here" {
		t.Errorf("the server received %q", all)
	}
}

func TestTCPResetsPassBothWays(t *testing.T) {
	ns, e := newTestComputer(t, Options{})
	serverError := make(chan error, 1)
	server := listen(t, publicAddress, func(conn *net.TCPConn) {
		var first [1]byte
		_, err := conn.Read(first[:])
		if first[0] == 'r' {
			_ = conn.SetLinger(0)
			return
		}
		if err == nil {
			_, err = conn.Read(first[:])
		}
		serverError <- err
	})
	conn := ns.mustDial(t, "tcp", server)
	if _, err := conn.Write([]byte("r")); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server has reset, and the computer reads %v", err)
	}
	conn = ns.mustDial(t, "tcp", server)
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	eventually(t, "the byte arrives", func() bool { return metric(t, e, "bytes_total", "out") == 2 })
	conn.Close()
	if err := <-serverError; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the computer has reset, and the server reads %v", err)
	}
	eventually(t, "the flows end", func() bool { return metric(t, e, "flows", "") == 0 })
}

func TestTCPClosedPortRefuses(t *testing.T) {
	ns, e := newTestComputer(t, Options{})
	if _, err := ns.dial(t.Context(), "tcp", publicAddress+":9"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	if failed := metric(t, e, "flows_failed_total", "tcp"); failed != 1 {
		t.Errorf("%v failed flows were counted", failed)
	}
}

func TestTCPIdleFlowIsReset(t *testing.T) {
	ns, e := newTestComputer(t, Options{Limits: Limits{TCPIdle: 100 * time.Millisecond}})
	conn := ns.mustDial(t, "tcp", listen(t, publicAddress, echo))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v", err)
	}
	eventually(t, "the flow ends", func() bool { return metric(t, e, "flows", "") == 0 })
}

// udpEcho sends back the datagrams to a port of an address.
func udpEcho(t testing.TB, address string) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(buffer[:n], from)
		}
	}()
	return conn.LocalAddr().String()
}

func TestUDP(t *testing.T) {
	for name, address := range map[string]string{"ipv4": publicAddress, "ipv6": publicAddress6} {
		t.Run(name, func(t *testing.T) {
			ns, e := newTestComputer(t, Options{Limits: Limits{UDPIdle: 2 * time.Second}})
			conn := ns.mustDial(t, "udp", udpEcho(t, address))
			for _, size := range []int{1, 1400, 9000, 65000} { // the last is in fragments
				sent, buffer := random(size), make([]byte, 64<<10)
				if _, err := conn.Write(sent); err != nil {
					t.Fatal(err)
				}
				n, err := conn.Read(buffer)
				if err != nil || !bytes.Equal(buffer[:n], sent) {
					t.Errorf("of %d bytes %d came back: %v", size, n, err)
				}
			}
			if flows := metric(t, e, "flows_opened_total", "udp"); flows != 1 {
				t.Errorf("%v flows were opened", flows)
			}
			eventually(t, "the idle flow ends", func() bool { return metric(t, e, "flows", "udp") == 0 })
		})
	}
}

func TestFlowLimits(t *testing.T) {
	const most = 50
	ns, e := newTestComputer(t, Options{Limits: Limits{Flows: most, NodeFlows: most + 10}})
	other := newNamespace(t)
	attachTo(t, e, other, "ws_2")
	server := listen(t, publicAddress, echo)
	var conns []net.Conn
	for range most {
		conns = append(conns, ns.mustDial(t, "tcp", server))
	}
	if _, err := ns.dial(t.Context(), "tcp", server); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial beyond the limit of the computer: %v", err)
	}
	for range 10 {
		other.mustDial(t, "tcp", server)
	}
	if _, err := other.dial(t.Context(), "tcp", server); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial beyond the limit of the node: %v", err)
	}
	for _, reason := range []refusal{refusedFlows, refusedNodeFlows} {
		if refused := metric(t, e, "flows_refused_total", string(reason)); refused != 1 {
			t.Errorf("%v flows were refused because of %s", refused, reason)
		}
	}
	// All of them work at the same time.
	results := make(chan error, most)
	for i, conn := range conns {
		go func() {
			sent, got := bytes.Repeat([]byte{byte(i)}, 100_000), make([]byte, 100_000)
			go func() { _, _ = conn.Write(sent) }()
			_, err := io.ReadFull(conn, got)
			if err == nil && !bytes.Equal(sent, got) {
				err = errors.New("other bytes came back")
			}
			results <- err
		}()
	}
	for range conns {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	conns[0].Close()
	eventually(t, "a flow ends", func() bool { return metric(t, e, "flows", "tcp") == most+9 })
	ns.mustDial(t, "tcp", server)
}

// TestLinksShareLimits attaches two networks of one computer, as it has if processes have networks of their own.
func TestLinksShareLimits(t *testing.T) {
	ns, e := newTestComputer(t, Options{Limits: Limits{Flows: 3}})
	own := newNamespace(t)
	stop := attach(t, e, own)
	if computers := metric(t, e, "computers", ""); computers != 1 {
		t.Errorf("%v computers are attached", computers)
	}
	server := listen(t, publicAddress, echo)
	ns.mustDial(t, "tcp", server)
	own.mustDial(t, "tcp", server)
	own.mustDial(t, "tcp", server)
	for name, one := range map[string]*namespace{"computer": ns, "process": own} {
		if _, err := one.dial(t.Context(), "tcp", server); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial of the %s beyond the limit: %v", name, err)
		}
	}
	stop()
	if flows, computers := metric(t, e, "flows", "tcp"), metric(t, e, "computers", ""); flows != 1 || computers != 1 {
		t.Errorf("after the end of one link: %v flows, %v computers", flows, computers)
	}
	ns.mustDial(t, "tcp", server)
	ns.mustDial(t, "tcp", server)
}

func TestFlowRate(t *testing.T) {
	ns, e := newTestComputer(t, Options{Limits: Limits{FlowsPerSecond: 1, FlowBurst: 5}})
	server := udpEcho(t, publicAddress)
	for range 50 {
		if _, err := ns.mustDial(t, "udp", server).Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	count := func(name string) float64 { return metric(t, e, name, "udp") }
	eventually(t, "all datagrams are handled", func() bool {
		return count("flows_opened_total")+metric(t, e, "flows_refused_total", "rate") == 50
	})
	if opened := count("flows_opened_total"); opened < 5 || opened > 25 {
		t.Errorf("%v flows were opened", opened)
	}
}

// TestFlowRateDelaysConnections waits for the second attempt of the computer's kernel.
func TestFlowRateDelaysConnections(t *testing.T) {
	ns, e := newTestComputer(t, Options{Limits: Limits{FlowsPerSecond: 3, FlowBurst: 1}})
	server := listen(t, publicAddress, echo)
	ns.mustDial(t, "tcp", server)
	ns.mustDial(t, "tcp", server)
	if refused := metric(t, e, "flows_refused_total", "rate"); refused != 1 {
		t.Errorf("%v attempts were refused", refused)
	}
}
