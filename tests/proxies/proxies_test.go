package proxies

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
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
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
)

// host is the name under which the example configurations serve the node.
const host = "atelier.example.com"

// longest bounds the wait for what takes a moment.
const longest = time.Minute

// upload is more than a proxy or a connection buffers.
var upload = bytes.Repeat([]byte("0123456789abcdef"), 20<<20/16)

// proxy is a reverse proxy of Debian's.
type proxy struct {
	// program is its name, config its example configuration.
	program, config string
	// edit changes the configuration; nil: it stays as it is, but for addresses and files.
	edit func(config string) string
	// start makes the arguments, for the path of the configuration.
	start func(config string) []string
}

var proxies = map[string]proxy{
	"nginx": {"nginx", "nginx/atelier.conf", inNginx, func(config string) []string { return []string{"-c", config, "-g", "daemon off;"} }},
	// A location with proxy_pass alone: nginx buffers what is sent and names the upstream as the host.
	"nginx, plain": {"nginx", "nginx/atelier.conf", func(config string) string {
		var kept []string
		for line := range strings.Lines(config) {
			if directive := strings.TrimSpace(line); !strings.HasPrefix(directive, "proxy_") || strings.HasPrefix(directive, "proxy_pass") {
				kept = append(kept, line)
			}
		}
		return inNginx(strings.Join(kept, ""))
	}, func(config string) []string { return []string{"-c", config, "-g", "daemon off;"} }},
	"haproxy": {"haproxy", "haproxy/atelier.cfg", nil, func(config string) []string { return []string{"-db", "-f", config} }},
	"caddy": {"caddy", "caddy/Caddyfile", func(config string) string {
		return "{\n\tadmin off\n\tgrace_period 1s\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n" + config
	}, func(config string) []string { return []string{"run", "--adapter", "caddyfile", "--config", config} }},
}

// inNginx makes a whole configuration of a site's.
func inNginx(site string) string {
	user := ""
	if os.Getuid() == 0 {
		user = "user root;\n" // its workers write to the test's directory
	}
	return user + "pid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\naccess_log off;\nclient_body_temp_path body;\nproxy_temp_path proxy;\n" +
		"fastcgi_temp_path fastcgi;\nuwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n" + site + "}\n"
}

// site is a node behind a proxy.
type site struct {
	*testing.T
	client *http.Client
	key    string
}

func TestProxies(t *testing.T) {
	for name, p := range proxies {
		t.Run(name, func(t *testing.T) {
			s := behind(t, p)
			t.Run("refused_uploads", func(t *testing.T) { s.with(t).refusesUploads() })
			t.Run("files", func(t *testing.T) { s.with(t).keepsFiles() })
			t.Run("stream", func(t *testing.T) { s.with(t).streams() })
		})
	}
}

func (s *site) with(t *testing.T) *site { return &site{t, s.client, s.key} }

// refusesUploads sends more than is buffered where it is refused early: the client gets the refusal, and not the proxy's
// complaint about a connection that was closed.
func (s *site) refusesUploads() {
	for _, test := range []struct {
		name, path, key string
		body            io.Reader
		status          int
	}{
		{"an invalid key", "/v1/ws/acme/drive/a", "atl_x", bytes.NewReader(upload), 401},
		{"an invalid key, without a length", "/v1/ws/acme/drive/a", "atl_x", io.MultiReader(bytes.NewReader(upload)), 401},
		{"no parent", "/v1/ws/acme/drive/none/a", s.key, bytes.NewReader(upload), 409},
		{"no workspace", "/v1/ws/nobody/drive/a", s.key, bytes.NewReader(upload), 404},
		{"no such path", "/v1/nothing", s.key, bytes.NewReader(upload), 404},
	} {
		if status, body, _ := s.send("PUT", test.path, test.key, test.body); status != test.status {
			s.Errorf("%s: %d %s, want %d", test.name, status, body, test.status)
		}
	}
	if status, body, _ := s.send("POST", "/v1/workspaces", s.key, strings.NewReader(`{"slug":"`+strings.Repeat("x", 3<<20)+`"}`)); status != 413 {
		s.Errorf("a JSON body too large: %d %s", status, body)
	}
}

// keepsFiles writes, renames by the public URL, and reads.
func (s *site) keepsFiles() {
	if status, body, _ := s.send("PUT", "/v1/ws/acme/drive/a.bin", s.key, bytes.NewReader(upload)); status != 201 {
		s.Fatalf("%d %s", status, body)
	}
	if status, body, _ := s.send("MOVE", "/v1/ws/acme/drive/a.bin", s.key, nil, "Destination", "https://"+host+"/v1/ws/acme/drive/b.bin"); status != 201 {
		s.Errorf("MOVE: %d %s", status, body)
	}
	if status, _, _ := s.send("MOVE", "/v1/ws/acme/drive/b.bin", s.key, nil, "Destination", "https://other.example.com/v1/ws/acme/drive/c.bin"); status != 502 {
		s.Errorf("MOVE to another host: %d, want 502", status)
	}
	if status, body, _ := s.send("GET", "/v1/ws/acme/drive/b.bin", s.key, nil); status != 200 || !bytes.Equal(body, upload) {
		s.Errorf("%d, %d bytes", status, len(body))
	}
}

// streams waits for a row that is written while the stream is open.
func (s *site) streams() {
	answer, err := s.client.Do(s.request("GET", "/v1/ws/acme/file-activity/events", s.key, nil))
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		s.Fatal(answer.Status)
	}
	if status, body, _ := s.send("PUT", "/v1/ws/acme/drive/live.txt", s.key, strings.NewReader("x")); status != 201 {
		s.Fatalf("%d %s", status, body)
	}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data:") && strings.Contains(lines.Text(), "live.txt") {
			return
		}
	}
	s.Error("the stream ended without the row")
}

func (s *site) request(method, path, key string, body io.Reader, headers ...string) *http.Request {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), longest)
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

// behind starts a node and a proxy in front of it.
func behind(t *testing.T, p proxy) *site {
	t.Helper()
	program, err := exec.LookPath(p.program)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(p.program + " is not installed")
	}
	upstream, key := startNode(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // nginx's workers may be another user's
		t.Fatal(err)
	}
	address := freeAddress(t)
	config, err := os.ReadFile(filepath.Join("..", "..", "deploy", p.config))
	if err != nil {
		t.Fatal(err)
	}
	chain, private := certify(t, dir)
	text := strings.NewReplacer(
		"127.0.0.1:8080", upstream, "listen 443", "listen "+address, "bind :443", "bind "+address,
		"/etc/ssl/atelier/fullchain.pem", chain, "/etc/ssl/atelier/privkey.pem", private, "/etc/ssl/atelier/atelier.pem", filepath.Join(dir, "both.pem"),
		"\n"+host+" {", "\nhttps://"+host+":"+port(address)+" {\n\tbind 127.0.0.1\n\ttls "+chain+" "+private,
	).Replace(string(config))
	if p.edit != nil {
		text = p.edit(text)
	}
	path := filepath.Join(dir, "config")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, dir, program, p.start(path))
	s := &site{T: t, key: key, client: &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: host},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
	}}}
	awaitListener(t, address)
	if status, body, _ := s.send("POST", "/v1/workspaces", key, strings.NewReader(`{"slug":"acme","name":"Acme"}`)); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	return s
}

// run starts a program, and ends it with the test.
func run(t *testing.T, dir, program string, args []string) {
	t.Helper()
	var said bytes.Buffer
	command := exec.Command(program, args...)
	command.Dir, command.Stdout, command.Stderr = dir, &said, &said
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
		case <-time.After(longest):
			command.Process.Kill()
			<-ended
		}
		if t.Failed() {
			t.Logf("%s said:\n%s", program, &said)
		}
	})
}

func startNode(t *testing.T) (address, key string) {
	t.Helper()
	public, err := url.Parse("https://" + host)
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), node.Options{
		Dir: t.TempDir(), PendingLimit: longest,
		HTTP: atelier.Options{Options: server.Options{
			PublicURL: public, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
			Limits: server.Limits{Rate: -1, AddressRate: -1, RequestTime: longest},
		}},
		Journal: persistence.Options{FS: vfs.NewMem(), CacheBytes: 4 << 20, Partitions: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go n.Server.Serve(listener)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), longest)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/admin/users", strings.NewReader(`{"email":"alice@example.com","name":"Alice"}`))
	r.Header.Set("Content-Type", "application/json")
	n.Server.Admin().ServeHTTP(w, r)
	var made struct{ Key string }
	if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || made.Key == "" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return listener.Addr().String(), made.Key
}

// freeAddress returns an address that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func port(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// awaitListener waits until a program that was started listens.
func awaitListener(t *testing.T, address string) {
	t.Helper()
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	for began := time.Now(); time.Since(began) < longest; <-retry.C {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return
		}
	}
	t.Fatalf("nothing listens at %s", address)
}

// certify writes a certificate for host and its key, each in a file, and both in one.
func certify(t *testing.T, dir string) (chain, private string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
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
	first := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	second := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	chain, private = filepath.Join(dir, "chain.pem"), filepath.Join(dir, "private.pem")
	for path, text := range map[string][]byte{chain: first, private: second, filepath.Join(dir, "both.pem"): append(first, second...)} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return chain, private
}
