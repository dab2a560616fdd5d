package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// A nameServer answers queries of type A, for "many.example." with more addresses than a datagram holds. Before each answer by
// UDP it sends one with another id.
func nameServer(t *testing.T) netip.AddrPort {
	t.Helper()
	respond := func(query []byte, size int) []byte {
		var m dnsmessage.Message
		if m.Unpack(query) != nil {
			return nil
		}
		m.Response, m.Additionals = true, nil
		count := 1
		if m.Questions[0].Name.String() == "many.example." {
			count = 300
		}
		for range count {
			if m.Questions[0].Type == dnsmessage.TypeA {
				header := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET}
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: [4]byte{93, 184, 215, 14}}})
			}
		}
		answer, err := m.Pack()
		if err == nil && len(answer) > size {
			m.Answers, m.Truncated = nil, true
			answer, err = m.Pack()
		}
		if err != nil {
			t.Error(err)
		}
		return answer
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	packets, err := net.ListenPacket("udp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close(); packets.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			answer := respond(buffer[:n], 512)
			answer[0]++
			_, _ = packets.WriteTo(answer, from)
			answer[0]--
			_, _ = packets.WriteTo(answer, from)
		}
	}()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if query, err := readMessage(conn); err == nil {
				_ = writeMessage(conn, respond(query, 65535))
			}
			conn.Close()
		}
	}()
	return netip.MustParseAddrPort(listener.Addr().String())
}

// resolver returns a resolver with the connections of a computer.
func resolver(ns *namespace) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return ns.dial(ctx, network, netip.AddrPortFrom(guest.Gateway, 53).String())
	}}
}

func TestDNS(t *testing.T) {
	var resolvers []netip.AddrPort
	ns, e := newTestComputer(t, Options{Resolvers: func() []netip.AddrPort { return resolvers }})
	working, closed := nameServer(t), netip.MustParseAddrPort("127.0.0.1:9")

	resolvers = []netip.AddrPort{closed, working}
	addresses, err := resolver(ns).LookupNetIP(t.Context(), "ip4", "one.example.")
	if err != nil || len(addresses) != 1 || addresses[0] != netip.MustParseAddr(publicAddress) {
		t.Errorf("one.example: %v, %v", addresses, err)
	}
	addresses, err = resolver(ns).LookupNetIP(t.Context(), "ip4", "many.example.")
	if err != nil || len(addresses) != 300 {
		t.Errorf("many.example: %d addresses, %v", len(addresses), err)
	}
	resolvers = []netip.AddrPort{closed}
	var dnsError *net.DNSError
	if _, err = resolver(ns).LookupNetIP(t.Context(), "ip4", "one.example."); !errors.As(err, &dnsError) || !dnsError.IsTemporary {
		t.Errorf("without a working resolver: %v", err)
	}
	if failed := metric(t, e, "dns_queries_total", "failed"); failed == 0 {
		t.Error("no failed query was counted")
	}
	if content := string(e.ResolvConf()); !strings.Contains(content, "nameserver 192.0.0.1\n") {
		t.Errorf("resolv.conf: %q", content)
	}
}

// TestDNSSurvivesGarbage sends messages that are no queries, and too many connections, and then a query.
func TestDNSSurvivesGarbage(t *testing.T) {
	server := nameServer(t)
	ns, e := newTestComputer(t, Options{Resolvers: func() []netip.AddrPort { return []netip.AddrPort{server} }})
	gateway := netip.AddrPortFrom(guest.Gateway, 53).String()
	conn := ns.mustDial(t, "udp", gateway)
	for size := range 64 {
		if _, err := conn.Write(random(size)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all messages are read", func() bool { return metric(t, e, "dns_queries_total", "") == 64 })
	for _, message := range [][]byte{{}, {0, 0}, {0, 1, 0}, append([]byte{0, 30}, random(30)...)} {
		conn := ns.mustDial(t, "tcp", gateway).(*net.TCPConn)
		_, _ = conn.Write(message)
		_ = conn.CloseWrite()
		if answer, err := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("%d bytes: answer %x, %v", len(message), answer, err)
		}
	}
	var conns []net.Conn
	for range queryConnections + 3 {
		conns = append(conns, ns.mustDial(t, "tcp", gateway))
	}
	// The connections of the step before may still count, so that more than three are refused.
	eventually(t, "connections are refused", func() bool { return metric(t, e, "dns_queries_total", "refused") >= 3 })
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "a query is answered", func() bool {
		addresses, err := resolver(ns).LookupNetIP(t.Context(), "ip4", "many.example.")
		return err == nil && len(addresses) == 300
	})
}

func TestWriteMessage(t *testing.T) {
	message := random(65535)
	r, w := io.Pipe()
	go func() { _ = writeMessage(w, message) }()
	got, err := readMessage(r)
	if err != nil || !bytes.Equal(got, message) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestProxy fetches a page through an HTTP proxy with the environment of a computer's processes, and reaches nothing else.
func TestProxy(t *testing.T) {
	asked := make(chan string, 10)
	listener, err := net.Listen("tcp", ownAddress+":0")
	if err != nil {
		t.Fatal(err)
	}
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Host
		_, _ = io.WriteString(w, strings.Repeat("content ", 100_000))
	})}
	t.Cleanup(func() { server.Close() })
	go func() { _ = server.Serve(listener) }()
	proxy := listener.Addr().String()
	ns := newNamespace(t)
	mode, err := Parse("http://" + proxy)
	if err != nil {
		t.Fatal(err)
	}
	e := newEgress(t, Options{Mode: mode})
	attach(t, e, ns)
	for _, variable := range e.Env() {
		if address, found := strings.CutPrefix(variable, "http_proxy="); found {
			proxyURL, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			client := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxyURL), DialContext: ns.dial, DisableKeepAlives: true}}
			response, err := client.Get("http://one.example/")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if content, err := io.ReadAll(response.Body); err != nil || len(content) != 800_000 {
				t.Errorf("%d bytes, %v", len(content), err)
			}
		}
	}
	if host := <-asked; host != "one.example" {
		t.Errorf("the proxy was asked for %q", host)
	}
	for _, address := range []string{proxy, listen(t, publicAddress, echo), listen(t, publicAddress6, echo), metadataAddress + ":80", "192.0.0.1:53"} {
		if _, err := ns.dial(t.Context(), "tcp", address); !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("dial %s: %v", address, err)
		}
	}
	if content := string(e.ResolvConf()); strings.Contains(content, "nameserver") {
		t.Errorf("resolv.conf: %q", content)
	}
}

func TestProxyIsGone(t *testing.T) {
	ns := newNamespace(t)
	mode, err := Parse("http://" + ownAddress + ":9")
	if err != nil {
		t.Fatal(err)
	}
	e := newEgress(t, Options{Mode: mode, Limits: Limits{Flows: 2}})
	attach(t, e, ns)
	for range 5 {
		conn, err := ns.dial(t.Context(), "tcp", guest.ProxyAddress.String())
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
			conn.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("dial and read: %v", err)
		}
		eventually(t, "the flow ends", func() bool { return metric(t, e, "flows", "") == 0 })
	}
	if failed := metric(t, e, "flows_failed_total", "proxy"); failed != 5 {
		t.Errorf("%v failed flows were counted", failed)
	}
}
