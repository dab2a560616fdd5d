package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/computer"
	"github.com/atelier-run/atelier/computer/apps"
	"github.com/atelier-run/atelier/entity/binding"
	"github.com/atelier-run/atelier/http/server"
)

// httpsSettings are the settings of HTTPS and its certificates.
type httpsSettings struct {
	HTTPSListen     string        `name:"https-listen" group:"HTTPS" placeholder:"HOST:PORT" help:"Address of HTTPS, such as :443. The address of listen then only redirects to it and answers probes and certificate authorities. None: HTTPS ends at a proxy in front of the node."`
	Certificates    []string      `name:"certificate" group:"HTTPS" type:"path" placeholder:"FILE" help:"PEM file with a certificate and its chain; read again when it changes. May be repeated."`
	CertificateKeys []string      `name:"certificate-key" group:"HTTPS" type:"path" placeholder:"FILE" help:"PEM file with the private key of the certificate at the same place among the certificates."`
	HSTS            time.Duration `name:"hsts" group:"HTTPS" default:"8760h" help:"Time for which browsers use HTTPS only, which responses over HTTPS say. 0: they do not."`
	ACMEEmail       string        `name:"acme-email" group:"HTTPS" placeholder:"EMAIL" help:"Address of the account at the certificate authority. It requests certificates for the host of public-url, for apps and for custom domains, and accepts the authority's terms of service. None: no certificates are requested."`
	ACMEDirectory   string        `name:"acme-directory" group:"HTTPS" default:"https://acme-v02.api.letsencrypt.org/directory" placeholder:"URL" help:"Directory of the certificate authority (RFC 8555)."`
	ACMERoot        string        `name:"acme-root" group:"HTTPS" type:"path" placeholder:"FILE" help:"PEM file with the root certificate of the directory's own HTTPS, for authorities within an organization. None: those of the system."`
}

func (s *httpsSettings) check() error {
	var errs []error
	if s.HTTPSListen != "" {
		if _, err := checkAddress("https-listen", s.HTTPSListen); err != nil {
			errs = append(errs, err)
		}
		if len(s.Certificates) == 0 && s.ACMEEmail == "" {
			errs = append(errs, errors.New("https-listen: it needs certificates: set certificate and certificate-key, or acme-email"))
		}
	}
	if len(s.Certificates) != len(s.CertificateKeys) {
		errs = append(errs, fmt.Errorf("certificate-key: there are %d keys for %d certificates", len(s.CertificateKeys), len(s.Certificates)))
	}
	if s.HTTPSListen == "" && (len(s.Certificates) > 0 || s.ACMEEmail != "") {
		errs = append(errs, errors.New("https-listen: certificates are used only with it"))
	}
	if s.ACMEEmail != "" && !strings.Contains(s.ACMEEmail, "@") {
		errs = append(errs, fmt.Errorf("acme-email: %q is not an address", s.ACMEEmail))
	}
	if at, err := url.Parse(s.ACMEDirectory); err != nil || at.Scheme != "https" || at.Host == "" {
		errs = append(errs, fmt.Errorf("acme-directory: %q is not an https URL", s.ACMEDirectory))
	}
	return errors.Join(append(errs, between("hsts", s.HSTS, 0, 5*365*24*time.Hour))...)
}

func (s *httpsSettings) files() []server.CertificateFile {
	files := make([]server.CertificateFile, len(s.Certificates))
	for i := range s.Certificates {
		files[i] = server.CertificateFile{Certificate: s.Certificates[i], Key: s.CertificateKeys[i]}
	}
	return files
}

// appSettings are the settings of apps and their addresses.
type appSettings struct {
	EdgeHost      string        `name:"edge-host" group:"Apps" placeholder:"HOST" help:"Apps have the addresses APP--WORKSPACE.HOST; DNS must lead all names below it to this node. None: the host of public-url, or localhost if that is an address."`
	EdgeAddresses []netip.Addr  `name:"edge-addresses" group:"Apps" placeholder:"ADDRESS" help:"Public IP addresses of this node, for the A and AAAA records of custom domains that cannot have a CNAME record. None: such domains cannot be used."`
	Resolvers     []string      `name:"resolvers" group:"Apps" placeholder:"HOST:PORT" help:"DNS resolvers that look up the records of custom domains. None: those of the system."`
	AppReady      time.Duration `name:"app-ready" group:"Apps" default:"30s" help:"Time in which the process of an app must accept connections on its port."`
	AppInstall    time.Duration `name:"app-install" group:"Apps" default:"10m" help:"Bound of an install command of an app."`
	AppDrain      time.Duration `name:"app-drain" group:"Apps" default:"30s" help:"Time for which a replaced process of an app serves its open connections."`
	AppResponse   time.Duration `name:"app-response" group:"Apps" default:"2m" help:"Time in which an app must begin its response to a request, once it has all of it; otherwise the visitor gets 504."`
	AppMemory     size          `name:"app-memory" group:"Apps" default:"1GiB" help:"Memory that the processes of an app may use, within that of their computer."`
	AppProcessors float64       `name:"app-processors" group:"Apps" default:"1" help:"Processors that the processes of an app may use, within those of their computer."`
}

func (s *appSettings) check() error {
	var errs []error
	if s.EdgeHost != "" {
		if err := binding.CheckHostname(s.EdgeHost); err != nil && s.EdgeHost != "localhost" {
			errs = append(errs, fmt.Errorf("edge-host: %q is not a host name in lower case without a port", s.EdgeHost))
		}
	}
	for _, resolver := range s.Resolvers {
		if _, err := netip.ParseAddrPort(resolver); err != nil {
			errs = append(errs, fmt.Errorf("resolvers: %q is not an IP address and a port, such as 192.0.2.53:53", resolver))
		}
	}
	if s.AppProcessors < 0.05 || s.AppProcessors > 1024 {
		errs = append(errs, fmt.Errorf("app-processors: %v is not between 0.05 and 1024", s.AppProcessors))
	}
	return errors.Join(append(errs,
		between("app-ready", s.AppReady, time.Second, time.Hour),
		between("app-install", s.AppInstall, time.Second, 24*time.Hour),
		between("app-drain", s.AppDrain, 0, time.Hour),
		between("app-response", s.AppResponse, time.Second, time.Hour),
		between("app-memory", s.AppMemory, 16<<20, 1<<50),
	)...)
}

// options returns the options of the supervisor of apps.
func (s *appSettings) options() apps.Options {
	return apps.Options{
		Ready: s.AppReady, Install: s.AppInstall, Drain: max(s.AppDrain, 1), // 0 stands for the default
		Limits: computer.Limits{MemoryBytes: int64(s.AppMemory), Processors: s.AppProcessors},
	}
}

// domainOptions returns the options of certificates and custom domains, for a node with a public URL.
func (c *serveCommand) domainOptions(public *url.URL) (node.DomainOptions, error) {
	o := node.DomainOptions{
		Enabled: c.ACMEEmail != "", Directory: c.ACMEDirectory, Email: c.ACMEEmail, Resolvers: c.Resolvers, PublicAddresses: c.EdgeAddresses,
		EdgeHost: c.EdgeHost, Hosts: []string{strings.ToLower(public.Hostname())},
	}
	if c.ACMERoot == "" {
		return o, nil
	}
	roots, err := os.ReadFile(c.ACMERoot)
	if err != nil {
		return o, fmt.Errorf("acme-root: %w", err)
	}
	o.Roots = x509.NewCertPool()
	if !o.Roots.AppendCertsFromPEM(roots) {
		return o, fmt.Errorf("acme-root: %s has no certificate", c.ACMERoot)
	}
	return o, nil
}
