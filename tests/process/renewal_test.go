package process

import (
	"crypto/tls"
	"math/big"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/atelier-run/atelier/edge/domains/domainstest"
	"github.com/atelier-run/atelier/tests/acme"
	"github.com/atelier-run/atelier/tests/loopback"
)

// TestDomainRenew replaces the certificate of a host of the node by "atelier admin domain renew".
func TestDomainRenew(t *testing.T) {
	const host = "platform.example.net"
	plain, secure := netip.MustParseAddrPort(loopback.Address(t)), netip.MustParseAddrPort(loopback.Address(t))
	dns := domainstest.NewDNS(t)
	dns.Set(t, host, "A "+secure.Addr().String())
	authority := acme.Start(t, acme.Options{DNS: dns.Address, HTTPPort: int(plain.Port()), TLSPort: int(secure.Port())})
	n := start(t, filepath.Join(t.TempDir(), "data"), "--public-url=https://"+host, "--listen="+plain.String(), "--https-listen="+secure.String(),
		"--acme-email=ops@example.net", "--acme-directory="+authority.Directory, "--acme-root="+authority.RootFile, "--resolvers="+dns.Address)
	serial := func() *big.Int {
		c, err := tls.Dial("tcp", secure.String(), &tls.Config{ServerName: host, RootCAs: authority.Issued})
		if err != nil {
			return nil
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber
	}
	var present *big.Int
	eventually(t, "the node has a certificate of the authority", func() bool { present = serial(); return present != nil })

	out, errs, code := atelier("admin", "domain", "renew", "--data="+n.dir, host)
	if code != 0 || out != `{"hostname":"`+host+`","status":"renewing"}`+"\n" {
		t.Fatalf("exit %d, %q, %q", code, out, errs)
	}
	eventually(t, "the certificate is replaced", func() bool { next := serial(); return next != nil && next.Cmp(present) != 0 })
	if code := n.terminate(t); code != 0 {
		t.Errorf("exit %d after SIGTERM:\n%s", code, n.logs)
	}
}
