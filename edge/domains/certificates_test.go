package domains

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3/acme"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/edge/domains/domainstest"
	"github.com/atelier-run/atelier/entity"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
)

const (
	host = "shop.example.com"
	own  = "platform.example.net"
)

// selfSigned returns the encoded certificate of a host, and its key.
func selfSigned(t testing.TB, host string, serial int64, notBefore, notAfter time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotBefore: notBefore, NotAfter: notAfter,
		AuthorityKeyId: []byte("authority"),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	check(t, err)
	key, err = certmagic.PEMEncodePrivateKey(private)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

// A site has Domains over entities in memory, with a clock that tests set. It sends nothing to an authority.
type site struct {
	testing.TB
	*Domains
	entities *domainstest.Entities
	now      time.Time
}

type ownAddresses struct{}

func (ownAddresses) StandardAddress(context.Context, string, string) (string, error) {
	return "app--ws.apps.example.net", nil
}

func (ownAddresses) IsOwn(_ context.Context, host string) (bool, error) { return host == own, nil }

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{TB: t, now: time.Now().Truncate(time.Second)}
	s.entities = domainstest.NewEntities(s.clock)
	s.Domains = s.member()
	return s
}

func (s *site) clock() time.Time { return s.now }

// member returns another member over the same entities.
func (s *site) member() *Domains {
	s.Helper()
	d, err := New(Options{
		Asker: s.entities, Addresses: ownAddresses{}, Key: make([]byte, KeyBytes), Clock: s.clock, Resolvers: []string{"127.0.0.1:1"},
		Directory: "https://127.0.0.1:1/directory",
	})
	check(s, err)
	s.Cleanup(d.Close)
	return d
}

// store stores a certificate of a host that is valid for 90 days.
func (s *site) store(host string, serial int64) {
	s.Helper()
	certificate, key := selfSigned(s, host, serial, s.now.Add(-time.Hour), s.now.Add(90*24*time.Hour))
	keys := certmagic.StorageKeys
	check(s, s.files.write(s.Context(), nil, s.files.seal(keys.SiteCert(s.issuerKey(), host), certificate),
		s.files.seal(keys.SitePrivateKey(s.issuerKey(), host), key)))
}

func (s *site) ask(c bindingv1.Command) *bindingv1.Binding {
	s.Helper()
	reply, err := s.entities.Ask(s.Context(), entity.Command{Kind: entity.KindBinding, Identity: host, Message: c})
	check(s, err)
	return reply.(*bindingv1.Binding)
}

// activate makes the binding of host active with a certificate that is in the store.
func (s *site) activate(serial int64) {
	s.Helper()
	s.store(host, serial)
	s.ask(&bindingv1.ClaimBinding{WorkspaceId: "ws", AppId: "app", DomainId: "dom"})
	state := s.ask(&bindingv1.ReportCheck{Number: 1, Owned: true, Routed: true})
	s.report(state.GetIssue().GetNumber(), serial)
}

func (s *site) report(number uint64, serial int64) {
	s.Helper()
	s.ask(&bindingv1.ReportIssued{Number: number, Certificate: &bindingv1.Certificate{
		Serial: fmt.Sprintf("%x", serial), NotBefore: s.now.UnixMilli(), NotAfter: s.now.Add(90 * 24 * time.Hour).UnixMilli(),
	}})
}

// handshake returns the serial number of the certificate that a client gets, and 0 if it gets none.
func (s *site) handshake(name string, protocols ...string) int64 {
	s.Helper()
	server, client := net.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- tls.Server(server, &tls.Config{
			GetCertificate: s.Certificates.Certificate, NextProtos: []string{"h2", "http/1.1", ChallengeProtocol},
		}).HandshakeContext(s.Context())
		server.Close()
	}()
	connection := tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true, NextProtos: protocols})
	err := connection.HandshakeContext(s.Context())
	client.Close()
	<-done
	if err != nil {
		return 0
	}
	return connection.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func (s *site) expect(name string, serial int64) {
	s.Helper()
	if got := s.handshake(name); got != serial {
		s.Errorf("%s: the certificate %d, want %d", name, got, serial)
	}
}

func TestCertificates(t *testing.T) {
	s := newSite(t)
	s.store(host, 1)
	s.expect(host, 0) // there is a certificate, and no binding
	s.now = s.now.Add(freshness)
	s.activate(1)
	s.expect(host, 1)
	s.expect("SHOP.example.com", 1)
	for _, name := range []string{"", "example.com", "x.shop.example.com", "other.example.com", "127.0.0.1", "*.example.com"} {
		s.expect(name, 0)
	}
	// A renewed certificate is served as soon as it is reported.
	s.store(host, 2)
	s.now = s.now.Add(time.Hour)
	s.expect(host, 1)
	state := s.ask(&bindingv1.DescribeBinding{})
	s.ask(&bindingv1.IssueCertificate{At: state.GetIssueAt()})
	s.report(state.GetLastIssue()+1, 2)
	s.now = s.now.Add(freshness)
	s.expect(host, 2)
	// A recheck does not interrupt it, and a removal ends it.
	s.ask(&bindingv1.RecheckBinding{DomainId: "dom"})
	s.now = s.now.Add(freshness)
	s.expect(host, 2)
	s.ask(&bindingv1.ReleaseBinding{DomainId: "dom"})
	s.now = s.now.Add(freshness)
	s.expect(host, 0)
}

func TestOwnHosts(t *testing.T) {
	s := newSite(t)
	s.expect(own, 0)
	s.store(own, 7)
	s.expect(own, 7)
	s.store(own, 8)
	s.expect(own, 7)
	s.now = s.now.Add(ownFreshness)
	s.expect(own, 8)
}

func TestStoredCertificateMustFit(t *testing.T) {
	s := newSite(t)
	s.activate(1)
	certificate, _ := selfSigned(t, host, 3, s.now, s.now.Add(time.Hour))
	check(t, s.files.write(t.Context(), nil, s.files.seal(certmagic.StorageKeys.SiteCert(s.issuerKey(), host), certificate)))
	s.expect(host, 0) // the stored key belongs to another certificate
	certificate, key := selfSigned(t, "other.example.com", 4, s.now, s.now.Add(time.Hour))
	check(t, s.files.write(t.Context(), nil, s.files.seal(certmagic.StorageKeys.SiteCert(s.issuerKey(), host), certificate),
		s.files.seal(certmagic.StorageKeys.SitePrivateKey(s.issuerKey(), host), key)))
	s.expect(host, 0) // it is for another host
}

// TestHandshakesWithoutStore checks that a certificate that was loaded is served while the store does not answer, and that a flood of
// unknown names is refused without look-ups.
func TestHandshakesWithoutStore(t *testing.T) {
	s := newSite(t)
	s.activate(1)
	s.expect(host, 1)
	s.entities.Fail(func(m proto.Message) error {
		if _, isQuery := m.(*bindingv1.DescribeBinding); !isQuery {
			return entity.Errorf(entity.Unavailable, "no answer")
		}
		return nil
	})
	s.now = s.now.Add(time.Hour)
	s.expect(host, 1)
	lookUps := 0
	s.entities.Fail(func(proto.Message) error { lookUps++; return nil })
	for i := range 3 * unknownBurst {
		client := netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)})
		if _, err := s.Certificates.name(t.Context(), client, fmt.Sprintf("x%d.example.com", i)); err == nil && i == 3*unknownBurst-1 {
			t.Error("every name of a flood is looked up")
		}
	}
	if lookUps < unknownBurst/2 || lookUps > 2*unknownBurst {
		t.Errorf("%d look-ups of unknown names", lookUps)
	}
	s.now = s.now.Add(time.Hour)
	s.expect(host, 1) // the flood does not keep known names from being looked up
}

// TestHandshakesOfOneClient checks that the unknown names of one client neither keep the names of another client from being looked up,
// nor replace names that are served.
func TestHandshakesOfOneClient(t *testing.T) {
	proxy := netip.MustParseAddr("10.0.0.1")
	s := newSite(t)
	s.Certificates.unknown.proxies = []netip.Prefix{netip.PrefixFrom(proxy, 8).Masked()}
	s.activate(1)
	s.expect(host, 1)
	lookUps := 0
	s.entities.Fail(func(proto.Message) error { lookUps++; return nil })
	ask := func(client netip.Addr, count int) int {
		before := lookUps
		for i := range count {
			_, _ = s.Certificates.name(t.Context(), client, fmt.Sprintf("x%d.%s.example.com", i, strings.ReplaceAll(client.String(), ":", "-")))
		}
		return lookUps - before
	}
	for client, want := range map[string]int{"192.0.2.1": 100, "::ffff:192.0.2.2": 100, "2001:db8::1": 100, "10.0.0.1": 200} {
		if got := ask(netip.MustParseAddr(client), 200); got != want {
			t.Errorf("%s: %d look-ups of 200 names, want %d", client, got, want)
		}
	}
	if got := ask(netip.MustParseAddr("2001:db8::2"), 10); got != 0 {
		t.Errorf("another address of the same network: %d look-ups", got)
	}
	for i := range maxNames {
		s.Certificates.put(fmt.Sprintf("y%d.example.com", i), servedName{})
	}
	if known, _ := s.Certificates.known(host); !known.served {
		t.Error("names that are not served have replaced one that is")
	}
	if size := s.Certificates.unserved.Len(); size != maxUnserved {
		t.Errorf("%d names that are not served are stored", size)
	}
	s.ask(&bindingv1.ReleaseBinding{DomainId: "dom"})
	s.now = s.now.Add(freshness)
	s.expect(host, 0)
	if known, found := s.Certificates.known(host); !found || known.served {
		t.Error("the answer about a name that was served is not replaced")
	}
}

// TestRequestsForChallengesAreLimited checks that one client does not keep the authority from reading a challenge.
func TestRequestsForChallengesAreLimited(t *testing.T) {
	s := newSite(t)
	session := newFiles(t, s.entities, 0).begin()
	check(t, solver{session}.Present(t.Context(), acme.Challenge{
		Type: methodHTTP, Token: "token", KeyAuthorization: "token.thumb", Identifier: acme.Identifier{Type: "dns", Value: host},
	}))
	handler := s.HTTPChallengeHandler(http.NotFoundHandler())
	get := func(client, token string) int {
		r := httptest.NewRequest("GET", "http://"+host+"/.well-known/acme-challenge/"+token, nil)
		r.RemoteAddr = client
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code
	}
	refused := 0
	for range 2 * challengeBurst {
		if get("192.0.2.1:1", "guess") == http.StatusServiceUnavailable {
			refused++
		}
	}
	if refused != 2*challengeBurst-challengeBurst/10 {
		t.Errorf("%d requests of a flood are refused", refused)
	}
	if got := get("192.0.2.2:1", "token"); got != http.StatusOK {
		t.Errorf("the authority gets %d", got)
	}
}

// TestChallenges checks that a member answers the challenges that another member has stored.
func TestChallenges(t *testing.T) {
	s := newSite(t)
	session := newFiles(t, s.entities, 0).begin()
	challenge := func(method string) acme.Challenge {
		return acme.Challenge{Type: method, Token: "token", KeyAuthorization: "token.thumb", Identifier: acme.Identifier{Type: "dns", Value: host}}
	}
	for _, method := range []string{methodHTTP, methodTLS} {
		check(t, solver{session}.Present(t.Context(), challenge(method)))
	}
	handler := s.HTTPChallengeHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	get := func(method, target, host string) string {
		r := httptest.NewRequest(method, target, nil)
		r.Host = host
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return fmt.Sprint(w.Code, " ", w.Body)
	}
	for _, test := range [][4]string{
		{"GET", "/.well-known/acme-challenge/token", host, "200 token.thumb"},
		{"GET", "/.well-known/acme-challenge/token", "SHOP.example.com:80", "200 token.thumb"},
		{"GET", "/.well-known/acme-challenge/other", host, "418 "},
		{"GET", "/.well-known/acme-challenge/", host, "418 "},
		{"GET", "/.well-known/acme-challenge/token", "other.example.com", "418 "},
		{"GET", "/.well-known/acme-challenge/token", "../../accounts", "418 "},
		{"POST", "/.well-known/acme-challenge/token", host, "418 "},
		{"GET", "/", host, "418 "},
	} {
		if got := get(test[0], test[1], test[2]); got != test[3] {
			t.Errorf("%s %s at %s: %q, want %q", test[0], test[1], test[2], got, test[3])
		}
	}
	if s.handshake(host) != 0 || s.handshake(host, "h2", ChallengeProtocol) != 0 || s.handshake(host, ChallengeProtocol) == 0 {
		t.Error("want a certificate for the protocol of the challenge alone")
	}
	for _, method := range []string{methodHTTP, methodTLS} {
		check(t, solver{session}.CleanUp(t.Context(), challenge(method)))
	}
	if got := get("GET", "/.well-known/acme-challenge/token", host); got != "418 " || s.handshake(host, ChallengeProtocol) != 0 {
		t.Errorf("after the challenge: %q", got)
	}
	s.entities.Fail(func(proto.Message) error { return entity.Errorf(entity.Unavailable, "no answer") })
	if got := get("GET", "/.well-known/acme-challenge/token", host); got[:3] != "503" {
		t.Errorf("without the store: %q", got)
	}
}

func TestCleanUp(t *testing.T) {
	s := newSite(t)
	s.store(host, 1)
	s.store("other.example.com", 2)
	check(t, s.files.write(t.Context(), nil, s.files.seal("certificates/earlier-authority/"+host+"/"+host+".key", nil),
		s.files.seal("certificates/earlier-authority/"+host+"x/x.key", nil), s.files.seal(challengeFile(methodHTTP, host), nil)))
	s.entities.Fail(func(m proto.Message) error {
		if _, removes := m.(*certificatesv1.RemoveFiles); removes {
			return entity.Errorf(entity.Unavailable, "no answer")
		}
		return nil
	})
	report, err := s.CleanUp(t.Context(), &bindingv1.CleanUp{Number: 4, Hostname: host})
	if failed, ok := report.(*bindingv1.ReportCleanUpFailed); err != nil || !ok || failed.GetNumber() != 4 || failed.GetReason() == "" {
		t.Fatalf("the report is %v, %v", report, err)
	}
	s.entities.Fail(nil)
	report, err = s.CleanUp(t.Context(), &bindingv1.CleanUp{Number: 5, Hostname: host})
	if done, ok := report.(*bindingv1.ReportCleanedUp); err != nil || !ok || done.GetNumber() != 5 {
		t.Fatalf("the report is %v, %v", report, err)
	}
	want, _ := json.Marshal([]string{
		"certificates/127.0.0.1-1-directory/other.example.com/other.example.com.crt", "certificates/127.0.0.1-1-directory/other.example.com/other.example.com.key",
		"certificates/earlier-authority/" + host + "x/x.key",
	})
	if got, _ := json.Marshal(s.entities.Names()); string(got) != string(want) {
		t.Errorf("left: %s", got)
	}
	// It waits for a request for a certificate that is still running.
	other := newFiles(t, s.entities, 0).begin()
	check(t, other.Lock(t.Context(), "issue_cert_"+host))
	ctx, cancel := context.WithCancel(t.Context())
	s.entities.Fail(func(m proto.Message) error {
		if _, acquires := m.(*certificatesv1.AcquireLock); acquires {
			cancel()
		}
		return nil
	})
	if report, err := s.CleanUp(ctx, &bindingv1.CleanUp{Number: 6, Hostname: host}); err == nil {
		t.Errorf("the report is %v", report)
	}
	other.end(t.Context())
}
