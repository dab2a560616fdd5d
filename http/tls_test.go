package http_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
)

// writeCertificate writes a certificate for names, with its key, and adds it to roots.
func writeCertificate(t *testing.T, roots *x509.CertPool, file server.CertificateFile, serial int64, names ...string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, content := range map[string][]byte{
		file.Certificate: certificate, file.Key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	roots.AppendCertsFromPEM(certificate)
}

func certificateFile(t *testing.T, name string) server.CertificateFile {
	dir := t.TempDir()
	return server.CertificateFile{Certificate: filepath.Join(dir, name+".pem"), Key: filepath.Join(dir, name+".key")}
}

// secure is a server that listens on HTTPS, and on plain HTTP for redirects.
type secure struct {
	http, https net.Listener
	roots       *x509.CertPool
	key         string
	server      nethttp.Handler
}

func newSecure(t *testing.T, follow follows, edit ...func(*http.Options)) *secure {
	t.Helper()
	w := newFakeEntities()
	w.follow = follow
	edit = append([]func(*http.Options){func(o *http.Options) {
		o.PublicURL, o.StrictTransport = &url.URL{Scheme: "https", Host: "atelier.test"}, time.Hour
	}}, edit...)
	s := w.server(t, edit...)
	at := &secure{server: s, roots: x509.NewCertPool(), key: w.key(alice)}
	file := certificateFile(t, "atelier")
	writeCertificate(t, at.roots, file, 1, "atelier.test", "*.apps.test")
	files, err := server.NewCertificateFiles([]server.CertificateFile{file}, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 2)
	at.https, at.http = listen(t), listen(t)
	go func() { served <- s.ServeTLS(at.https, &tls.Config{GetCertificate: files.Certificate}) }()
	go func() { served <- s.ServeRedirects(at.http, nil) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	})
	return at
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// client returns a client that connects to the listeners whatever the host, and follows no redirect.
func (at *secure) client(t *testing.T, http2 bool) *nethttp.Client {
	var protocols nethttp.Protocols
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2)
	transport := &nethttp.Transport{
		Protocols: &protocols, TLSClientConfig: &tls.Config{RootCAs: at.roots},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			to := at.http
			if strings.HasSuffix(address, ":443") {
				to = at.https
			}
			return new(net.Dialer).DialContext(ctx, network, to.Addr().String())
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &nethttp.Client{Transport: transport, Timeout: 20 * time.Second, CheckRedirect: func(*nethttp.Request, []*nethttp.Request) error {
		return nethttp.ErrUseLastResponse
	}}
}

func (at *secure) get(t *testing.T, c *nethttp.Client, address string) (*nethttp.Response, string) {
	t.Helper()
	r, err := nethttp.NewRequest("GET", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+at.key)
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func TestHTTPS(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			at := newSecure(t, nil)
			response, _ := at.get(t, at.client(t, http2), "https://atelier.test/v1/whoami")
			if response.StatusCode != 200 || response.Proto != name {
				t.Errorf("%s over %s", response.Status, response.Proto)
			}
			if got := response.Header.Get("Strict-Transport-Security"); got != "max-age=3600" {
				t.Errorf("Strict-Transport-Security is %q", got)
			}
		})
	}
}

// Frames are sent over TLS as over plain TCP, although they cannot be sent there without waiting.
func TestStreamOverHTTPS(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		t.Run(name, func(t *testing.T) {
			at := newSecure(t, func(ctx context.Context, s activity.Subscription) error {
				for i := range 3 {
					if !s.TrySend(frameOf(i, 10)) {
						if err := s.Send(frameOf(i, 10)); err != nil {
							return err
						}
					}
				}
				<-ctx.Done()
				return nil
			})
			r, err := nethttp.NewRequest("GET", "https://atelier.test"+events, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+at.key)
			response, err := at.client(t, http2).Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			lines := bufio.NewReader(response.Body)
			for seen := 0; seen < 3; {
				line, err := lines.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(line, "id: ") {
					seen++
				}
			}
		})
	}
}

// overHTTP2 makes the clients of a bubble use HTTP/2. Deadlines of HTTP/2 end a request also while nothing is read or written.
func (b *bubble) overHTTP2() {
	b.Helper()
	roots, file := x509.NewCertPool(), certificateFile(b.T, "atelier")
	writeCertificate(b.T, roots, file, 1, "atelier")
	certificate, err := tls.LoadX509KeyPair(file.Certificate, file.Key)
	if err != nil {
		b.Fatal(err)
	}
	secure, served := newPipes(), make(chan error, 1)
	go func() { served <- b.server.ServeTLS(secure, &tls.Config{Certificates: []tls.Certificate{certificate}}) }()
	b.Cleanup(func() {
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
	var protocols nethttp.Protocols
	protocols.SetHTTP2(true)
	b.scheme, b.client = "https", &nethttp.Client{Transport: &nethttp.Transport{
		Protocols: &protocols, TLSClientConfig: &tls.Config{RootCAs: roots}, DialContext: secure.dial,
	}}
}

// fakeEdge serves the hosts below apps.test.
type fakeEdge struct{}

func (fakeEdge) Serves(r *nethttp.Request) bool { return strings.HasSuffix(r.Host, ".apps.test") }
func (fakeEdge) ServeHTTP(w nethttp.ResponseWriter, r *nethttp.Request) {
	io.WriteString(w, "app at "+r.Host)
}
func (fakeEdge) Drain() {}

func TestHostsOfAppsGoToTheEdge(t *testing.T) {
	at := newSecure(t, nil, func(o *http.Options) { o.Edge = fakeEdge{} })
	c := at.client(t, true)
	if response, body := at.get(t, c, "https://notes--acme.apps.test/x"); body != "app at notes--acme.apps.test" || response.StatusCode != 200 {
		t.Errorf("an app answers %s %q", response.Status, body)
	} else if got := response.Header.Get("Strict-Transport-Security"); got != "max-age=3600" {
		t.Errorf("Strict-Transport-Security of an app is %q", got)
	}
	plain := httptest.NewServer(at.server) // a proxy in front of the server has carried out the handshake
	defer plain.Close()
	r, _ := nethttp.NewRequest("GET", plain.URL, nil)
	r.Host = "notes--acme.apps.test"
	response, err := plain.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := response.Header.Get("Strict-Transport-Security"); got != "" {
		t.Errorf("Strict-Transport-Security of an app without TLS is %q", got)
	}
	if response, _ := at.get(t, c, "https://atelier.test/v1/whoami"); response.StatusCode != 200 {
		t.Errorf("the server answers %s", response.Status)
	}
}

func TestRedirectsToHTTPS(t *testing.T) {
	at := newSecure(t, nil, func(o *http.Options) { o.Edge = fakeEdge{} })
	c := at.client(t, false)
	for address, want := range map[string]string{
		"http://atelier.test/v1/whoami?x=1":     "https://atelier.test/v1/whoami?x=1",
		"http://notes--acme.apps.test/a%2Fb?c":  "https://notes--acme.apps.test/a%2Fb?c",
		"http://localhost/":                     "https://atelier.test/",
		"http://atelier.test//elsewhere.test/x": "https://atelier.test//elsewhere.test/x",
	} {
		response, _ := at.get(t, c, address)
		if got := response.Header.Get("Location"); response.StatusCode != 308 || got != want {
			t.Errorf("%s is answered %s, %q; want 308, %q", address, response.Status, got, want)
		}
	}
	for _, address := range []string{"http://atelier.test/healthz", "http://elsewhere.test/healthz"} {
		if response, body := at.get(t, c, address); response.StatusCode != 200 {
			t.Errorf("the probe %s is answered %s %s", address, response.Status, body)
		}
	}
	// The name of a custom domain that is not active yet, or of anybody.
	for _, address := range []string{"http://elsewhere.test/", "http://elsewhere.test/metrics"} {
		if response, body := at.get(t, c, address); response.StatusCode != 421 || response.Header.Get("Location") != "" {
			t.Errorf("%s is answered %s %s", address, response.Status, body)
		}
	}
}

// A client that does not begin its handshake is cut off, and other clients are served meanwhile.
func TestHandshakesAreBounded(t *testing.T) {
	at := newSecure(t, nil, func(o *http.Options) { o.Limits.HeaderTime = 300 * time.Millisecond })
	silent, err := net.Dial("tcp4", at.https.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if response, _ := at.get(t, at.client(t, false), "https://atelier.test/v1/whoami"); response.StatusCode != 200 {
		t.Errorf("beside a silent client the answer is %s", response.Status)
	}
	silent.SetReadDeadline(time.Now().Add(3 * time.Minute))
	if _, err := silent.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the silent client reads %v, want the end", err)
	}
}

// A client with many connections that do not begin their handshakes does not keep other clients from theirs.
func TestHandshakesOfAClientAreBounded(t *testing.T) {
	at := newSecure(t, nil, func(o *http.Options) { o.Limits.HeaderTime = 10 * time.Minute })
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 1100 {
		silent, err := dialer.Dial("tcp4", at.https.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	c := at.client(t, false)
	c.Timeout = 3 * time.Minute
	if response, _ := at.get(t, c, "https://atelier.test/v1/whoami"); response.StatusCode != 200 {
		t.Errorf("beside the silent client the answer is %s", response.Status)
	}
}

// The heads of HTTP/1.1 requests have the same bounds over TLS.
func TestHeadsAreBoundedOverHTTPS(t *testing.T) {
	at := newSecure(t, nil)
	c, err := tls.Dial("tcp4", at.https.Addr().String(), &tls.Config{RootCAs: at.roots, ServerName: "atelier.test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(3 * time.Minute))
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: atelier.test\r\n"+strings.Repeat("A: b\r\n", 1000)+"\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := nethttp.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != 431 {
		t.Errorf("the answer is %s, want 431", response.Status)
	}
}

func TestCertificateFiles(t *testing.T) {
	now := time.Now()
	first, second := certificateFile(t, "first"), certificateFile(t, "second")
	roots := x509.NewCertPool()
	writeCertificate(t, roots, first, 1, "atelier.test")
	writeCertificate(t, roots, second, 2, "*.apps.test")
	files, err := server.NewCertificateFiles([]server.CertificateFile{first, second}, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	serial := func(name string) int64 {
		t.Helper()
		c, err := files.Certificate(&tls.ClientHelloInfo{
			ServerName: name, SupportedVersions: []uint16{tls.VersionTLS13}, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
		})
		if err != nil {
			return 0
		}
		return c.Leaf.SerialNumber.Int64()
	}
	expect := func(name string, want int64) {
		t.Helper()
		if got := serial(name); got != want {
			t.Errorf("the certificate for %s has the serial number %d, want %d", name, got, want)
		}
	}
	expect("atelier.test", 1)
	expect("notes--acme.apps.test", 2)
	expect("elsewhere.test", 0)

	writeCertificate(t, roots, second, 3, "*.apps.test")
	expect("notes--acme.apps.test", 2) // not checked again yet
	now = now.Add(time.Minute)
	expect("notes--acme.apps.test", 3)

	if err := os.WriteFile(second.Certificate, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	expect("notes--acme.apps.test", 3)
	writeCertificate(t, roots, second, 4, "*.apps.test")
	now = now.Add(time.Minute)
	expect("notes--acme.apps.test", 4)

	if _, err := server.NewCertificateFiles([]server.CertificateFile{{Certificate: first.Certificate, Key: second.Key}}, time.Now, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a certificate with the key of another one is accepted")
	}
}
