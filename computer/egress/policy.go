package egress

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Policy says which destinations computers may reach. The zero value allows all ports of all public addresses.
//
// An address that is not public is refused unless one of Networks contains it. Addresses that lead to the node itself or to the
// metadata of a cloud, which often has credentials, are refused unless a network consists of this one address, so that no large
// network allows them by mistake: loopback and link-local addresses, the addresses of the node's interfaces and of metadata.
// Unspecified, broadcast and multicast addresses are always refused. An IPv6 address that contains an IPv4 address (RFC 4291, 3056,
// 6052) is refused also if the IPv4 address is.
type Policy struct {
	Networks []netip.Prefix
	// Ports are the TCP and UDP ports that may be reached; empty: all.
	Ports []PortRange
}

// A PortRange is a range of ports with its two ends.
type PortRange struct{ First, Last uint16 }

// ParsePolicy returns the policy for networks like "10.1.0.0/16" or "10.1.2.3", and ports like "443" or "8000-8999". It returns
// an error that names the first text that is neither.
func ParsePolicy(networks, ports []string) (Policy, error) {
	var p Policy
	for _, text := range networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			address, addressErr := netip.ParseAddr(text)
			if addressErr != nil || address.Zone() != "" {
				return Policy{}, fmt.Errorf("egress: the allowed network %q is not valid: write it like 10.1.0.0/16 or 10.1.2.3", text)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		if network != network.Masked() {
			return Policy{}, fmt.Errorf("egress: the allowed network %q has bits beyond its length: write %s", text, network.Masked())
		}
		if network.Addr().Is4In6() {
			return Policy{}, fmt.Errorf("egress: the allowed network %q is IPv4 written as IPv6: write it as IPv4", text)
		}
		p.Networks = append(p.Networks, network)
	}
	for _, text := range ports {
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, lastErr := strconv.ParseUint(last, 10, 16)
		if err != nil || lastErr != nil || from == 0 || from > to {
			return Policy{}, fmt.Errorf("egress: the allowed port %q is not valid: write it like 443 or 8000-8999", text)
		}
		p.Ports = append(p.Ports, PortRange{uint16(from), uint16(to)})
	}
	return p, nil
}

// A refusal is the reason to refuse a flow, a label of a metric. The empty refusal allows the flow.
type refusal string

const (
	allowed            refusal = ""
	refusedPort        refusal = "port"
	refusedUnspecified refusal = "unspecified"
	refusedBroadcast   refusal = "broadcast"
	refusedMulticast   refusal = "multicast"
	refusedLoopback    refusal = "loopback"
	refusedLinkLocal   refusal = "link_local"
	refusedMetadata    refusal = "metadata"
	refusedOwn         refusal = "own_address"
	refusedPrivate     refusal = "private"
	refusedReserved    refusal = "reserved"
	// refusedUnknown: the addresses of the node could not be read.
	refusedUnknown refusal = "own_addresses_unknown"
)

// class is the reason to refuse the addresses of a network. Of networks that contain an address, the first in classes counts.
type class struct {
	network netip.Prefix
	refusal refusal
}

// classes are the special-purpose addresses of the registries of IANA (RFC 6890). Of IPv6 only 2000::/3 and the prefix of NAT64
// are public. The IPv4 address in an address of NAT64 is checked too.
var classes = func() (all []class) {
	for _, line := range []struct {
		refusal  refusal
		networks string
	}{
		{refusedMetadata, "169.254.169.254/32 fd00:ec2::254/128 fd20:ce::254/128 100.100.100.200/32 168.63.129.16/32"},
		{refusedBroadcast, "255.255.255.255/32"},
		{refusedUnspecified, "0.0.0.0/8 ::/128"},
		{refusedLoopback, "127.0.0.0/8 ::1/128"},
		{refusedLinkLocal, "169.254.0.0/16 fe80::/10"},
		{refusedMulticast, "224.0.0.0/4 ff00::/8"},
		{refusedPrivate, "10.0.0.0/8 100.64.0.0/10 172.16.0.0/12 192.168.0.0/16 fc00::/7 fec0::/10"},
		{refusedReserved, "192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4"},
		{refusedReserved, "2001::/23 2001:db8::/32 3fff::/20"},
		{allowed, "0.0.0.0/0 64:ff9b::/96 2000::/3"},
		{refusedReserved, "::/0"},
	} {
		for network := range strings.FieldsSeq(line.networks) {
			all = append(all, class{netip.MustParsePrefix(network), line.refusal})
		}
	}
	return all
}()

var (
	sixToFour = netip.MustParsePrefix("2002::/16")
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
)

// embedded returns the IPv4 address in an address of 6to4 or of NAT64 with the well-known prefix.
func embedded(a netip.Addr) (netip.Addr, bool) {
	bytes := a.As16()
	switch {
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(bytes[2:6])), true
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(bytes[12:16])), true
	}
	return netip.Addr{}, false
}

// check returns the reason why a computer must not reach a destination. The address must not be an IPv4 address mapped to IPv6.
// The caller must connect to that same address.
func (p *Policy) check(to netip.AddrPort, own *ownAddresses) refusal {
	inRange := func(r PortRange) bool { return r.First <= to.Port() && to.Port() <= r.Last }
	if to.Port() == 0 || len(p.Ports) > 0 && !slices.ContainsFunc(p.Ports, inRange) {
		return refusedPort
	}
	if inner, found := embedded(to.Addr()); found {
		if reason := p.checkAddress(inner, own); reason != allowed {
			return reason
		}
	}
	return p.checkAddress(to.Addr(), own)
}

func (p *Policy) checkAddress(a netip.Addr, own *ownAddresses) refusal {
	reason := own.classify(a)
	if reason == allowed {
		i := slices.IndexFunc(classes, func(c class) bool { return c.network.Contains(a) })
		if i < 0 {
			return refusedReserved // an IPv4 address mapped to IPv6, or one with a zone
		}
		reason = classes[i].refusal
	}
	switch reason {
	case refusedPrivate, refusedReserved:
		if slices.ContainsFunc(p.Networks, func(n netip.Prefix) bool { return n.Contains(a) }) {
			return allowed
		}
	case refusedLoopback, refusedLinkLocal, refusedMetadata, refusedOwn:
		if slices.Contains(p.Networks, netip.PrefixFrom(a, a.BitLen())) {
			return allowed
		}
	}
	return reason
}

// ownAddressesAge is the age at which the addresses of the node's interfaces are read again.
const ownAddressesAge = time.Second

// ownAddresses are the addresses of the node's interfaces. It is safe for concurrent use.
type ownAddresses struct {
	read func() ([]net.Addr, error)

	mu        sync.Mutex
	at        time.Time
	addresses map[netip.Addr]refusal
}

// classify returns refusedOwn for an address of the node, also for the address that all nodes of its network have,
// refusedBroadcast for the broadcast address of its networks, and refusedUnknown if the interfaces cannot be read.
func (o *ownAddresses) classify(a netip.Addr) refusal {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.addresses == nil || time.Since(o.at) > ownAddressesAge {
		o.addresses = nil
		found, err := o.read()
		if err != nil {
			return refusedUnknown
		}
		o.at, o.addresses = time.Now(), map[netip.Addr]refusal{}
		for _, address := range found {
			if network, isNetwork := address.(*net.IPNet); isNetwork {
				o.add(network)
			}
		}
	}
	return o.addresses[a]
}

func (o *ownAddresses) add(network *net.IPNet) {
	address, valid := netip.AddrFromSlice(network.IP)
	if !valid {
		return
	}
	address = address.Unmap()
	ones, _ := network.Mask.Size()
	prefix := netip.PrefixFrom(address, ones).Masked()
	// A loopback interface has all addresses of its network, and the class says so.
	if address.IsLoopback() {
		return
	}
	if address.Is4() && ones < 31 {
		first := prefix.Addr().As4()
		last := binary.BigEndian.Uint32(first[:]) | ^uint32(0)>>ones
		o.addresses[netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, last)))] = refusedBroadcast
	}
	o.addresses[prefix.Addr()] = refusedOwn
	o.addresses[address] = refusedOwn
}
