package egress

import (
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/atelier-run/atelier/computer/egress/guest"
)

// A Mode says how computers reach the network. The zero value is Off.
type Mode struct {
	on bool
	// proxy is the host and port of the proxy, and scheme its protocol; empty: no proxy.
	proxy, scheme string
}

// The modes without a proxy.
var (
	// Off: computers reach nothing.
	Off = Mode{}
	// On: computers reach the destinations that the policy allows.
	On = Mode{on: true}
)

// Parse returns the mode that text describes: "off", "on", or the address of a proxy, "http://host:port" or
// "socks5://host:port". It returns an error if text is none of these.
func Parse(text string) (Mode, error) {
	switch text {
	case "off":
		return Off, nil
	case "on":
		return On, nil
	}
	expected := "expected off, on, http://host:port or socks5://host:port"
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return Mode{}, fmt.Errorf("egress: the network of computers is not valid: %s", expected)
	}
	if u.User != nil {
		// The processes of a computer would have to know them. The text is not repeated, because it is a secret.
		return Mode{}, fmt.Errorf("egress: the address of the proxy has credentials, which every process of a computer would learn: "+
			"let the proxy recognize this node by its address; %s", expected)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	isProxy := (u.Scheme == "http" || u.Scheme == "socks5") && u.Hostname() != "" && err == nil && port > 0 &&
		(u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == ""
	if !isProxy {
		return Mode{}, fmt.Errorf("egress: the network of computers is %q: %s", text, expected)
	}
	return Mode{proxy: net.JoinHostPort(u.Hostname(), u.Port()), scheme: u.Scheme}, nil
}

// String returns the text that Parse accepts.
func (m Mode) String() string {
	switch {
	case m.proxy != "":
		return m.scheme + "://" + m.proxy
	case m.on:
		return "on"
	}
	return "off"
}

// Link returns the link that guest.PrepareNamespace creates in each computer.
func (m Mode) Link() guest.Link {
	switch {
	case m.proxy != "":
		return guest.Proxy
	case m.on:
		return guest.TUN
	}
	return guest.NoLink
}

// Env returns the variables that the environment of every process of a computer has, each "name=value". They lead programs to
// the proxy, if there is one.
func (m Mode) Env() []string {
	if m.proxy == "" {
		return nil
	}
	address := m.scheme + "://" + guest.ProxyAddress.String()
	if m.scheme == "socks5" {
		// The h lets the proxy resolve names, which the computer cannot.
		address = "socks5h://" + guest.ProxyAddress.String()
	}
	const local = "localhost,127.0.0.1,::1"
	return []string{
		"http_proxy=" + address, "https_proxy=" + address, "all_proxy=" + address, "no_proxy=" + local,
		"HTTP_PROXY=" + address, "HTTPS_PROXY=" + address, "ALL_PROXY=" + address, "NO_PROXY=" + local,
	}
}

// ResolvConf returns the content of /etc/resolv.conf of computers.
func (m Mode) ResolvConf() []byte {
	if m.Link() == guest.TUN {
		return fmt.Appendf(nil, "nameserver %s\noptions edns0\n", guest.Gateway)
	}
	return []byte("# This computer resolves no names.\n")
}
