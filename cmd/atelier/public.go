package main

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
)

// publicSettings are the public address of the node and the proxies in front of it.
type publicSettings struct {
	PublicURL      string    `name:"public-url" group:"Address" placeholder:"URL" help:"Where clients reach the API, as https://atelier.example.com; plain http on a loopback address alone. Links and cookies follow from it. None: the address that is listened on."`
	Hosts          []string  `group:"Address" placeholder:"NAME" help:"Further host names at which clients reach the node, such as atelier.lan. The node answers 421 for every other host name, except the host of public-url, localhost, IP addresses, the host names in listen and https-listen, and the host names of apps (\"Host names\" in docs/operations.md)."`
	TrustedProxies []network `group:"Address" placeholder:"NETWORK" help:"Networks of proxies that are believed in X-Forwarded-For, as 10.0.0.0/8."`
}

// A network is a range of addresses or a single address.
type network struct{ netip.Prefix }

func (n *network) UnmarshalText(text []byte) error {
	if one, err := netip.ParseAddr(string(text)); err == nil && one.Zone() == "" {
		n.Prefix = netip.PrefixFrom(one.Unmap(), one.Unmap().BitLen())
		return nil
	}
	prefix, err := netip.ParsePrefix(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a network, such as 10.0.0.0/8, fd00::/8 or 192.0.2.1", text)
	}
	n.Prefix = prefix.Masked()
	return nil
}

func (s *publicSettings) check() error {
	for _, name := range s.Hosts {
		if !hostForm.MatchString(name) {
			return fmt.Errorf("hosts: %q is not a host name without a port, as atelier.lan", name)
		}
	}
	if s.PublicURL == "" {
		return nil
	}
	at, err := checkURL("public-url", s.PublicURL)
	if err == nil && (at.Path != "" && at.Path != "/" || at.RawQuery != "" || at.Fragment != "") {
		return fmt.Errorf("public-url: %q must have only a scheme and a host", s.PublicURL)
	}
	return err
}

// hostForm is the form of a host name. Its labels may have underscores, as the names of containers do.
var hostForm = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// checkURL parses the URL of a server. It accepts https, and plain http for a loopback address: no other machine on the network can
// read the traffic.
func checkURL(setting, text string) (*url.URL, error) {
	at, err := url.Parse(text)
	switch {
	case err != nil, at.Host == "", at.User != nil, at.Scheme != "https" && at.Scheme != "http":
		return nil, fmt.Errorf("%s: %q is not the URL of a server", setting, text)
	case at.Scheme == "http" && !loopback(at.Hostname()):
		return nil, fmt.Errorf("%s: %q is plain http, which is allowed only for loopback addresses", setting, text)
	}
	return at, nil
}

func (s *publicSettings) proxies() []netip.Prefix {
	trusted := make([]netip.Prefix, len(s.TrustedProxies))
	for i, n := range s.TrustedProxies {
		trusted[i] = n.Prefix
	}
	return trusted
}

// publicURL returns the URL under which clients reach a node that listens on an address. If it is not configured, it is the
// loopback address; local reports that the node may listen on others too, where the URL does not work.
func (s *publicSettings) publicURL(listen string) (at *url.URL, local bool, err error) {
	if s.PublicURL != "" {
		at, err = url.Parse(s.PublicURL)
		return &url.URL{Scheme: at.Scheme, Host: at.Host}, false, err
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, false, err
	}
	if !loopback(host) {
		host, local = "localhost", true
	}
	return &url.URL{Scheme: "http", Host: net.JoinHostPort(host, port)}, local, nil
}
