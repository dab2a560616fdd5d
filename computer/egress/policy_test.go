package egress

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func ownOf(addresses ...string) *ownAddresses {
	return &ownAddresses{read: func() (all []net.Addr, err error) {
		for _, text := range addresses {
			ip, network, err := net.ParseCIDR(text)
			if err != nil {
				return nil, err
			}
			all = append(all, &net.IPNet{IP: ip, Mask: network.Mask})
		}
		return all, nil
	}}
}

func TestPolicy(t *testing.T) {
	own := ownOf("127.0.0.1/8", "::1/128", "5.6.7.8/24", "10.9.0.5/16", "2a00:1::5/64")
	for _, test := range []struct {
		networks, ports string
		reason          refusal
		destinations    string
	}{
		{"", "", allowed, "8.8.8.8 1.1.1.1 5.6.7.9 11.0.0.1 2a00:1::6 2606:4700::1111 64:ff9b::808:808 2002:808:808::1"},
		{"", "", refusedLoopback, "127.0.0.1 127.255.0.9 ::1 64:ff9b::7f00:1 2002:7f00:1::1"},
		{"", "", refusedMetadata, "169.254.169.254 fd00:ec2::254 100.100.100.200 168.63.129.16 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::"},
		{"", "", refusedLinkLocal, "169.254.0.1 fe80::1 64:ff9b::a9fe:1"},
		{"", "", refusedPrivate, "10.0.0.1 100.64.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fd12::1 fec0::1 64:ff9b::a00:1 2002:c0a8:101::1"},
		{"", "", refusedOwn, "5.6.7.8 10.9.0.5 5.6.7.0 2a00:1::5 2a00:1:: 64:ff9b::506:708 2002:506:708::"},
		{"", "", refusedBroadcast, "255.255.255.255 5.6.7.255 10.9.255.255 64:ff9b::506:7ff"},
		{"", "", refusedMulticast, "224.0.0.1 239.1.1.1 ff02::1 64:ff9b::e000:1"},
		{"", "", refusedUnspecified, "0.0.0.0 0.1.2.3 :: 64:ff9b::"},
		{"", "", refusedReserved, "192.0.0.1 192.0.2.1 198.18.0.1 203.0.113.1 240.0.0.1 2001:0:1::1 2001:db8::1 64:ff9b:1::a00:1 ::10.0.0.1 100::1"},
		{"", "", refusedReserved, "::ffff:8.8.8.8 ::ffff:127.0.0.1"},
		{"0.0.0.0/0 ::/0", "", allowed, "10.0.0.1 203.0.113.1 fd12::1 100::1 64:ff9b::a00:1"},
		{"0.0.0.0/0 ::/0", "", refusedLoopback, "127.0.0.1 ::1"},
		{"0.0.0.0/0 ::/0 fd00:ec2::/32", "", refusedMetadata, "169.254.169.254 fd00:ec2::254"},
		{"0.0.0.0/0 ::/0 10.9.0.0/16", "", refusedOwn, "5.6.7.8 10.9.0.5 2a00:1::5"},
		{"0.0.0.0/0 ::/0", "", refusedLinkLocal, "169.254.0.1 fe80::1"},
		{"0.0.0.0/0 ::/0 224.0.0.1 255.255.255.255 0.0.0.0", "", refusedMulticast, "224.0.0.1 ff02::1"},
		{"0.0.0.0/0 255.255.255.255 5.6.7.255", "", refusedBroadcast, "255.255.255.255 5.6.7.255"},
		{"0.0.0.0 ::", "", refusedUnspecified, "0.0.0.0 ::"},
		{"5.6.7.8 127.0.0.1 169.254.169.254 10.1.0.0/16", "", allowed, "5.6.7.8 127.0.0.1 169.254.169.254 10.1.2.3 64:ff9b::a01:203"},
		{"10.1.0.0/16", "", refusedPrivate, "10.2.0.1 172.16.0.1"},
		{"", "53 80-442", refusedPort, "8.8.8.8 10.0.0.1"},
		{"", "443", allowed, "8.8.8.8"},
		{"", "80-443", allowed, "8.8.8.8"},
	} {
		p, err := ParsePolicy(strings.Fields(test.networks), strings.Fields(test.ports))
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.FieldsSeq(test.destinations) {
			if reason := p.check(netip.AddrPortFrom(netip.MustParseAddr(text), 443), own); reason != test.reason {
				t.Errorf("%s with networks %q and ports %q: reason %q, want %q", text, test.networks, test.ports, reason, test.reason)
			}
		}
	}
}

func TestPolicyRefusesAllIfOwnAddressesAreUnknown(t *testing.T) {
	own := &ownAddresses{read: func() ([]net.Addr, error) { return nil, errors.New("no descriptor is free") }}
	if reason := new(Policy).check(netip.MustParseAddrPort("8.8.8.8:443"), own); reason != refusedUnknown {
		t.Errorf("reason %q", reason)
	}
}

func TestPolicyRechecksOwnAddresses(t *testing.T) {
	own := ownOf("5.6.7.8/32")
	to := netip.MustParseAddrPort("9.9.9.9:443")
	if reason := new(Policy).check(to, own); reason != allowed {
		t.Errorf("reason %q", reason)
	}
	own.read = ownOf("9.9.9.9/32").read
	own.at = own.at.Add(-2 * ownAddressesAge)
	if reason := new(Policy).check(to, own); reason != refusedOwn {
		t.Errorf("reason %q", reason)
	}
}

func TestParsePolicyRefuses(t *testing.T) {
	for _, network := range []string{"", "x", "10.0.0.0/33", "10.0.0.1/8", "fe80::1%eth0", "::ffff:10.0.0.0/104", "example.com"} {
		if p, err := ParsePolicy([]string{network}, nil); err == nil {
			t.Errorf("network %q: %v", network, p)
		}
	}
	for _, port := range []string{"", "0", "65536", "-1", "5-", "-5", "9-8", "http", "1-2-3"} {
		if p, err := ParsePolicy(nil, []string{port}); err == nil {
			t.Errorf("port %q: %v", port, p)
		}
	}
}

func TestParse(t *testing.T) {
	for text, env := range map[string]string{
		"off": "", "on": "", "http://proxy.example:3128": "https_proxy=http://127.0.0.1:3128",
		"socks5://[2001:db8::1]:1080": "all_proxy=socks5h://127.0.0.1:3128",
	} {
		m, err := Parse(text)
		if err != nil || m.String() != text {
			t.Errorf("%q: %v, %v", text, m, err)
		}
		if env == "" && m.Env() != nil || env != "" && !slices.Contains(m.Env(), env) {
			t.Errorf("%q: environment %q", text, m.Env())
		}
	}
	for _, text := range []string{
		"", "On", "proxy:3128", "http://proxy", "http://proxy:0", "http://proxy:99999", "http://:80", "https://proxy:443", "ftp://proxy:21",
		"http://proxy:80/path", "http://proxy:80?x", "http://proxy:80#x", "http://%zz:80", "http:proxy:80",
	} {
		if m, err := Parse(text); err == nil {
			t.Errorf("%q: %v", text, m)
		}
	}
	for _, text := range []string{"http://user:secret@proxy:80", "http://user:secret@%zz:80"} {
		if _, err := Parse(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestLimitsRefuseNegativeValues(t *testing.T) {
	for _, limits := range []Limits{{Flows: -1}, {NodeFlows: -1}, {FlowsPerSecond: -1}, {FlowBurst: -1}, {TCPIdle: -1}, {UDPIdle: -1}} {
		if _, err := New(Options{Limits: limits}); err == nil {
			t.Errorf("%+v: no error", limits)
		}
	}
}

// TestRefused connects from a computer to servers that accept every connection.
func TestRefused(t *testing.T) {
	for _, test := range []struct {
		name, server, destination string
		reason                    refusal
	}{
		{"metadata", metadataAddress, metadataAddress, refusedMetadata},
		{"private", privateAddress, privateAddress, refusedPrivate},
		{"address of the node", ownAddress, ownAddress, refusedOwn},
		{"address of the node, 6to4", ownAddress, "2002:5db8:d70f::1", refusedOwn},
		{"loopback of the node, NAT64", "127.0.0.1", "64:ff9b::7f00:1", refusedLoopback},
		{"metadata, NAT64", metadataAddress, "64:ff9b::a9fe:a9fe", refusedMetadata},
		{"metadata, IPv6", publicAddress, "fd00:ec2::254", refusedMetadata},
		{"gateway", "127.0.0.1", "192.0.0.1", refusedReserved},
	} {
		t.Run(test.name, func(t *testing.T) {
			ns, e := newTestComputer(t, Options{})
			_, port, _ := net.SplitHostPort(listen(t, test.server, echo))
			if _, err := ns.dial(t.Context(), "tcp", net.JoinHostPort(test.destination, port)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dial: %v", err)
			}
			_, port, _ = net.SplitHostPort(udpEcho(t, test.server))
			conn := ns.mustDial(t, "udp", net.JoinHostPort(test.destination, port))
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("read of UDP: %v", err)
			}
			if refused := metric(t, e, "flows_refused_total", string(test.reason)); refused != 2 {
				t.Errorf("%v flows were refused because of %s", refused, test.reason)
			}
			if opened := metric(t, e, "flows_opened_total", ""); opened != 0 {
				t.Errorf("%v flows were opened", opened)
			}
		})
	}
	t.Run("loopback", func(t *testing.T) {
		// These never leave the computer, which has nothing on its own loopback interface.
		ns, e := newTestComputer(t, Options{})
		_, port, _ := net.SplitHostPort(listen(t, "127.0.0.1", echo))
		for _, host := range []string{"127.0.0.1", "::ffff:127.0.0.1", "::1"} {
			if _, err := ns.dial(t.Context(), "tcp", net.JoinHostPort(host, port)); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("dial %s: %v", host, err)
			}
		}
		if opened := metric(t, e, "flows_opened_total", ""); opened != 0 {
			t.Errorf("%v flows were opened", opened)
		}
	})
}

func TestAllowedNetworks(t *testing.T) {
	policy, err := ParsePolicy([]string{"10.20.0.0/16", ownAddress, metadataAddress}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ns, _ := newTestComputer(t, Options{Policy: policy})
	for _, address := range []string{privateAddress, ownAddress, metadataAddress} {
		conn := ns.mustDial(t, "tcp", listen(t, address, echo))
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestAllowedPorts(t *testing.T) {
	server := listen(t, "127.0.0.1", echo)
	_, port, _ := net.SplitHostPort(server)
	policy, err := ParsePolicy(nil, []string{port})
	if err != nil {
		t.Fatal(err)
	}
	ns, e := newTestComputer(t, Options{Policy: policy})
	if _, err := ns.dial(t.Context(), "tcp", listen(t, publicAddress, echo)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	if refused := metric(t, e, "flows_refused_total", "port"); refused != 1 {
		t.Errorf("%v flows were refused", refused)
	}
}
