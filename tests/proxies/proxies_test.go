package proxies

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/atelier-run/atelier/cmd/node"
	atelier "github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/api/apitest"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/loopback"
	"github.com/atelier-run/atelier/tests/nodetest"
	"github.com/atelier-run/atelier/tests/testmachine"
)

// host is the host name in the example configurations.
const host = "atelier.example.com"

// timeout limits requests, and the start and the end of processes.
const timeout = 3 * time.Minute

// upload is a body that is larger than the buffers of a proxy and of a connection.
var upload = bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)

// proxy is a reverse proxy that Debian packages.
type proxy struct {
	// program is the name of the program, and config the path of its example configuration below deploy.
	program, config string
	// edit changes the text of the configuration after startBehind has replaced addresses and paths; nil: no change.
	edit func(config string) string
	// arguments returns the arguments of the program for the path of the configuration.
	arguments func(config string) []string
	// compresses is set if edit has the proxy compress responses for clients that accept gzip.
	compresses bool
}

// proxies lists the proxies by the names of their subtests.
var proxies = map[string]proxy{
	"nginx": {program: "nginx", config: "nginx/atelier.conf", edit: completeNginx, arguments: nginxArguments},
	// Without the other proxy directives, nginx buffers request bodies and sends the upstream's address as the host.
	"nginx_with_proxy_pass_only": {program: "nginx", config: "nginx/atelier.conf", edit: func(config string) string {
		var kept []string
		for line := range strings.Lines(config) {
			if directive := strings.TrimSpace(line); !strings.HasPrefix(directive, "proxy_") || strings.HasPrefix(directive, "proxy_pass") {
				kept = append(kept, line)
			}
		}
		return completeNginx(strings.Join(kept, ""))
	}, arguments: nginxArguments},
	"haproxy": {program: "haproxy", config: "haproxy/atelier.cfg", arguments: haproxyArguments},
	"caddy":   {program: "caddy", config: "caddy/Caddyfile", edit: completeCaddy, arguments: caddyArguments},
	"nginx_with_gzip": {program: "nginx", config: "nginx/atelier.conf", edit: func(config string) string {
		return completeNginx("gzip on;\ngzip_proxied any;\ngzip_min_length 1;\ngzip_types " + compressed + ";\n" + config)
	}, arguments: nginxArguments, compresses: true},
	"haproxy_with_compression": {program: "haproxy", config: "haproxy/atelier.cfg", edit: func(config string) string {
		return strings.Replace(config, "\nbackend atelier\n", "\nbackend atelier\n    compression algo gzip\n    compression type "+compressed+"\n", 1)
	}, arguments: haproxyArguments, compresses: true},
	"caddy_with_encode": {program: "caddy", config: "caddy/Caddyfile", edit: func(config string) string {
		// As the documentation says: Caddy 2.6 holds back responses that it compresses.
		encode := "\tencode gzip {\n\t\tmatch {\n\t\t\theader Content-Type application/json*\n\t\t}\n\t}\n"
		return completeCaddy(strings.Replace(config, "\n(atelier) {\n", "\n(atelier) {\n"+encode, 1))
	}, arguments: caddyArguments, compresses: true},
}

// compressed lists the types of responses that nginx and HAProxy compress, if they do.
const compressed = "application/json application/x-ndjson text/event-stream"

func haproxyArguments(config string) []string { return []string{"-db", "-f", config} }

func caddyArguments(config string) []string {
	return []string{"run", "--adapter", "caddyfile", "--config", config}
}

// completeCaddy returns a configuration of Caddy that needs no rights and no other port.
func completeCaddy(config string) string {
	return "{\n\tadmin off\n\tgrace_period 1s\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n" + config
}

// nginxArguments returns the arguments that run nginx in the foreground.
func nginxArguments(config string) []string { return []string{"-c", config, "-g", "daemon off;"} }

// completeNginx returns a complete configuration of nginx around the server block of the example, with all temporary files in the
// test's directory.
func completeNginx(site string) string {
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // the workers must be able to write to the test's directory
	}
	return user + "pid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path body;\nproxy_temp_path proxy;\n" +
		"fastcgi_temp_path fastcgi;\nuwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n" + site + "}\n"
}

// site is a node behind a proxy, with the workspace "acme".
type site struct {
	*testing.T
	// client sends all requests to the proxy.
	client *http.Client
	// key is an API key of the user who owns the workspace.
	key string
	// proxy and node are the addresses of both, and roots has the certificate of the proxy.
	proxy, node string
	roots       *x509.CertPool
}

// TestProxies tests uploads, file operations, event streams, commands, large heads of requests, terminals and apps through each proxy, and
// streams and commands through proxies that compress.
func TestProxies(t *testing.T) {
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			s := startBehind(t, p)
			if p.compresses {
				t.Run("compression", func(t *testing.T) { s.with(t).testCompression() })
				t.Run("compression_http2", func(t *testing.T) { s.with(t).overHTTP2().testCompression() })
				return
			}
			t.Run("refused_uploads", func(t *testing.T) { s.with(t).testRefusedUploads() })
			t.Run("file_operations", func(t *testing.T) { s.with(t).testFileOperations() })
			t.Run("event_stream", func(t *testing.T) { s.with(t).testEventStream() })
			t.Run("session_stream", func(t *testing.T) { s.with(t).testSessionStream() })
			t.Run("command", func(t *testing.T) { s.with(t).testCommand() })
			if name != "nginx_with_proxy_pass_only" { // it passes neither WebSockets nor the host on, nor long heads of responses
				t.Run("large_heads", func(t *testing.T) { s.with(t).testLargeHeads() })
				t.Run("large_heads_http2", func(t *testing.T) { s.with(t).overHTTP2().testLargeHeads() })
				t.Run("terminal", func(t *testing.T) { s.with(t).testTerminal() })
				t.Run("app", func(t *testing.T) { s.with(t).testApp() })
			}
		})
	}
}

// with returns the site for a subtest.
func (s *site) with(t *testing.T) *site {
	of := *s
	of.T = t
	return &of
}

// testRefusedUploads asks for the metrics, which the proxy does not pass on, and sends large bodies that the node refuses before it has read them. The client must receive the node's status,
// and not the proxy's error about a closed connection.
func (s *site) testRefusedUploads() {
	for _, test := range []struct {
		name, path, key string
		body            io.Reader
		status          int
	}{
		{"invalid_key", "/v1/ws/acme/drive/a", "atl_x", bytes.NewReader(upload), 401},
		{"invalid_key_without_length", "/v1/ws/acme/drive/a", "atl_x", io.MultiReader(bytes.NewReader(upload)), 401},
		{"missing_parent_folder", "/v1/ws/acme/drive/none/a", s.key, bytes.NewReader(upload), 409},
		{"missing_workspace", "/v1/ws/nobody/drive/a", s.key, bytes.NewReader(upload), 404},
		{"unknown_path", "/v1/nothing", s.key, bytes.NewReader(upload), 404},
	} {
		if status, body, _ := s.send("PUT", test.path, test.key, test.body); status != test.status {
			s.Errorf("%s: status %d, want %d: %s", test.name, status, test.status, body)
		}
	}
	if status, body, _ := s.send("GET", "/metrics", "", nil); status != 404 || bytes.Contains(body, []byte("go_goroutines")) {
		s.Errorf("the metrics are published: status %d", status)
	}
	if status, body, _ := s.send("POST", "/v1/workspaces", s.key, strings.NewReader(`{"slug":"`+strings.Repeat("x", 3<<20)+`"}`)); status != 413 {
		s.Errorf("a JSON body that is too large: status %d, want 413: %s", status, body)
	}
}

// testFileOperations uploads a file, moves it to a destination with the public URL, and downloads it.
func (s *site) testFileOperations() {
	if status, body, _ := s.send("PUT", "/v1/ws/acme/drive/a.bin", s.key, bytes.NewReader(upload)); status != 201 {
		s.Fatalf("PUT: status %d, want 201: %s", status, body)
	}
	if status, body, _ := s.send("MOVE", "/v1/ws/acme/drive/a.bin", s.key, nil, "Destination", "https://"+host+"/v1/ws/acme/drive/b.bin"); status != 201 {
		s.Errorf("MOVE: status %d, want 201: %s", status, body)
	}
	if status, _, _ := s.send("MOVE", "/v1/ws/acme/drive/b.bin", s.key, nil, "Destination", "https://other.example.com/v1/ws/acme/drive/c.bin"); status != 502 {
		s.Errorf("MOVE to another host: status %d, want 502", status)
	}
	if status, body, _ := s.send("GET", "/v1/ws/acme/drive/b.bin", s.key, nil); status != 200 || !bytes.Equal(body, upload) {
		s.Errorf("GET: status %d and %d bytes, want 200 and the %d bytes uploaded", status, len(body), len(upload))
	}
}

// request returns a request to the proxy that ends after timeout. headers are pairs of a name and a value.
func (s *site) request(method, path, key string, body io.Reader, headers ...string) *http.Request {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), timeout)
	s.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, "https://"+host+path, body)
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	if method == "POST" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// send sends a request and returns the status, the body and the headers of the response. It reports an error of the connection as
// a failure of the test, and then returns the status 0.
func (s *site) send(method, path, key string, body io.Reader, headers ...string) (int, []byte, http.Header) {
	s.Helper()
	answer, err := s.client.Do(s.request(method, path, key, body, headers...))
	if err != nil {
		s.Errorf("%s %s: %v", method, path, err)
		return 0, nil, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.Errorf("%s %s: %v", method, path, err)
	}
	return answer.StatusCode, text, answer.Header
}

// startBehind starts a node and a proxy in front of it with the example configuration, in which it replaces the addresses and the
// paths of certificates. It skips the test if the proxy is not installed, or fails it if the environment has CI=true.
func startBehind(t *testing.T, p proxy) *site {
	t.Helper()
	program, err := exec.LookPath(p.program)
	if err != nil {
		testmachine.Lacks(t, p.program+" is not installed")
	}
	upstream, key := startNode(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // the workers of nginx may run as another user
		t.Fatal(err)
	}
	address := loopback.Address(t)
	ip, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join("..", "..", "deploy", p.config))
	if err != nil {
		t.Fatal(err)
	}
	chain, private := writeCertificate(t, dir)
	text := strings.NewReplacer(
		"127.0.0.1:8080", upstream, "listen 443", "listen "+address, "bind :443", "bind "+address,
		"/etc/ssl/atelier/fullchain.pem", chain, "/etc/ssl/atelier/privkey.pem", private, "/etc/ssl/atelier/atelier.pem", filepath.Join(dir, "both.pem"),
		"\n"+host+" {", "\nhttps://"+host+":"+port+" {\n\tbind "+ip+"\n\ttls "+chain+" "+private,
		"\n*.apps.example.com {", "\nhttps://*.apps.example.com:"+port+" {\n\tbind "+ip,
	).Replace(string(config))
	if p.edit != nil {
		text = p.edit(text)
	}
	path := filepath.Join(dir, "config")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, dir, program, p.arguments(path))
	s := &site{T: t, key: key, proxy: address, node: upstream, roots: x509.NewCertPool()}
	authority, err := os.ReadFile(chain)
	if err != nil || !s.roots.AppendCertsFromPEM(authority) {
		t.Fatal("no certificate: ", err)
	}
	s.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: s.roots},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
	}}
	awaitListener(t, address)
	if status, body, _ := s.send("POST", "/v1/workspaces", key, strings.NewReader(`{"slug":"acme","name":"Acme"}`)); status != 201 {
		t.Fatalf("POST /v1/workspaces: status %d, want 201: %s", status, body)
	}
	return s
}

// run starts a program, which is interrupted when the test ends and killed if it does not exit within timeout.
func run(t *testing.T, dir, program string, args []string) {
	t.Helper()
	var output bytes.Buffer
	command := exec.Command(program, args...)
	command.Dir, command.Stdout, command.Stderr = dir, &output, &output
	if strings.HasSuffix(program, "nginx") {
		command.Args = append(command.Args, "-p", dir)
	}
	command.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(os.Interrupt)
		ended := make(chan struct{})
		go func() { command.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(timeout):
			command.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("the output of %s:\n%s", program, &output)
		}
	})
}

// startNode starts a node that trusts proxies on the loopback addresses, and creates a user. It returns the address of the node
// and an API key of the user.
func startNode(t *testing.T) (address, key string) {
	t.Helper()
	public, err := url.Parse("https://" + host)
	if err != nil {
		t.Fatal(err)
	}
	n := nodetest.Start(t, node.Start, node.Options{
		Dir: t.TempDir(), PendingLimit: timeout, HoldTurns: true,
		Computers: node.ComputerOptions{Driver: node.LocalDriver}, Domains: node.DomainOptions{EdgeHost: edgeHost},
		HTTP: atelier.Options{Computers: apitest.NewComputers(t), Sessions: api.SessionOptions{DeliveryTime: time.Millisecond}, Options: server.Options{
			PublicURL: public, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
			Heartbeat: 2 * timeout, // so that no heartbeat brings an event that a proxy holds back
			Limits:    server.Limits{Rate: -1, AddressRate: -1, RequestTime: timeout},
		}},
		Journal: persistence.Options{FS: vfs.NewMem(), CacheBytes: 4 << 20, Partitions: 4},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go n.Server.Serve(listener)
	return listener.Addr().String(), nodetest.NewPerson(t, n.Server.Admin(), "alice@example.com", "Alice").Key
}

// awaitListener waits until a process listens at an address. It fails the test if none does within timeout.
func awaitListener(t *testing.T, address string) {
	t.Helper()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for began := time.Now(); time.Since(began) < timeout; <-retry.C {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return
		}
	}
	t.Fatalf("no process listens at %s after %s", address, timeout)
}

// writeCertificate writes a self-signed certificate for host and its private key to a file each, and both to the file both.pem. It
// returns the paths of the first two.
func writeCertificate(t *testing.T, dir string) (chain, private string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host, "*." + edgeHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificatePEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	chain, private = filepath.Join(dir, "chain.pem"), filepath.Join(dir, "private.pem")
	for path, text := range map[string][]byte{
		chain: certificatePEM, private: keyPEM, filepath.Join(dir, "both.pem"): append(certificatePEM, keyPEM...),
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return chain, private
}
