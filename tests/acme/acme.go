// Package acme starts a real ACME authority for tests: Pebble, Let's Encrypt's authority for testing clients. It is built from the module
// in the folder pebble and runs as a separate process. If it cannot be built, the tests that need it are skipped, or fail if the
// environment has CI=true.
package acme

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/loopback"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// Authority is a running authority.
type Authority struct {
	// Directory is the URL of its directory, Roots has the certificate of that URL, and RootFile is a PEM file with the same certificate.
	Directory string
	Roots     *x509.CertPool
	RootFile  string
	// Issued has the root of the certificates that it issues.
	Issued *x509.CertPool
	// Kill ends the process.
	Kill func()
	// management is the URL of its management interface.
	management string
}

// Options are the addresses at which the authority verifies names.
type Options struct {
	// DNS is the address of the DNS server, HTTPPort and TLSPort the ports of the challenges.
	DNS               string
	HTTPPort, TLSPort int
	// Blocked are names that the authority rejects.
	Blocked []string
}

// startTimeout limits the start of the authority.
const startTimeout = time.Minute

// Start starts an authority, which is killed when the test ends. It returns when the authority answers.
func Start(t testing.TB, o Options) *Authority {
	t.Helper()
	binary, dir := testmachine.Build(t, "tests/acme/pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble"), t.TempDir()
	listen, management := loopback.Address(t), loopback.Address(t)
	certificate, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a := &Authority{
		Directory: "https://" + listen + "/dir", Roots: x509.NewCertPool(), RootFile: certificate, Issued: x509.NewCertPool(),
		management: "https://" + management,
	}
	a.Roots.AppendCertsFromPEM(writeCertificate(t, certificate, key, listen, management))
	config := filepath.Join(dir, "config.json")
	content, err := json.Marshal(map[string]any{"pebble": map[string]any{
		"listenAddress": listen, "managementListenAddress": management, "certificate": certificate, "privateKey": key,
		"httpPort": o.HTTPPort, "tlsPort": o.TLSPort, "domainBlocklist": o.Blocked, "keyAlgorithm": "ecdsa",
		"retryAfter": map[string]int{"authz": 0, "order": 0},
	}})
	if err == nil {
		err = os.WriteFile(config, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	command := exec.Command(binary, "-config", config, "-dnsserver", o.DNS)
	// It neither waits before it verifies a name, nor refuses good nonces at random, nor reuses authorizations.
	command.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0", "PEBBLE_AUTHZREUSE=0")
	command.Dir, command.Stdout, command.Stderr = dir, &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(exited)
	}()
	a.Kill = func() {
		_ = command.Process.Kill()
		<-exited
	}
	t.Cleanup(func() {
		a.Kill()
		if t.Failed() {
			t.Logf("pebble: %s", log.String())
		}
	})
	a.Issued.AppendCertsFromPEM(a.await(t, a.management+"/roots/0", exited))
	a.await(t, a.Directory, exited)
	return a
}

// client returns a client for requests to the authority.
func (a *Authority) client() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.Roots}, DisableKeepAlives: true}}
}

// suggest makes the authority suggest to renew a certificate between two times (RFC 9773).
func (a *Authority) suggest(t testing.TB, c *x509.Certificate, start, end time.Time) {
	t.Helper()
	body, err := json.Marshal(map[string]string{
		"Certificate": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})),
		"ARIResponse": fmt.Sprintf(`{"suggestedWindow":{"start":%q,"end":%q}}`, start.UTC().Format(time.RFC3339), end.UTC().Format(time.RFC3339)),
	})
	if err != nil {
		t.Fatal(err)
	}
	response, err := a.client().Post(a.management+"/set-renewal-info/", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Fatalf("the authority does not take renewal information: %s", response.Status)
	}
}

// await waits until the authority answers a request, and returns the answer. It fails the test if the process exits first.
func (a *Authority) await(t testing.TB, url string, exited <-chan struct{}) []byte {
	t.Helper()
	client := a.client()
	timeout := time.After(startTimeout)
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		response, err := client.Get(url)
		if err == nil {
			content, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode == http.StatusOK {
				return content
			}
		}
		select {
		case <-exited:
			t.Fatal("pebble exited before it answered a request")
		case <-timeout:
			t.Fatalf("pebble did not answer within %s: %v", startTimeout, err)
		case <-time.After(pause):
		}
	}
}

// writeCertificate writes a certificate for the addresses at which the authority itself listens, and the key of the certificate. It
// returns the certificate.
func writeCertificate(t testing.TB, certificate, key string, addresses ...string) []byte {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	for _, address := range addresses {
		parsed, err := netip.ParseAddrPort(address)
		if err != nil {
			t.Fatal(err)
		}
		template.IPAddresses = append(template.IPAddresses, parsed.Addr().AsSlice())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encodedKey, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encoded := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, content := range map[string][]byte{certificate: encoded, key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encodedKey})} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return encoded
}
