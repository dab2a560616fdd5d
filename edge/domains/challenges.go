package domains

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"

	"github.com/atelier-run/atelier/entity/binding"
	"github.com/atelier-run/atelier/limit"
)

// The methods of an authority for the verification of a name.
const (
	methodHTTP = acme.ChallengeTypeHTTP01
	methodTLS  = acme.ChallengeTypeTLSALPN01
)

// ChallengeProtocol is the protocol of TLS-ALPN-01, which the server must offer (RFC 8737).
const ChallengeProtocol = acmez.ACMETLS1Protocol

const (
	challengePath = "/.well-known/acme-challenge/"
	// Requests for challenges need no credentials, and each is a look-up in the store; see strangers.
	challengeRate  = 50
	challengeBurst = 200
)

// A solver stores the challenges of a session, where all members find them.
type solver struct{ session *session }

// Present stores a challenge.
func (s solver) Present(ctx context.Context, c acme.Challenge) error {
	content, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return s.session.Store(ctx, challengeFile(c.Type, c.Identifier.Value), content)
}

// CleanUp removes a challenge, also after the operation was canceled.
func (s solver) CleanUp(ctx context.Context, c acme.Challenge) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	return s.session.Delete(ctx, challengeFile(c.Type, c.Identifier.Value))
}

func challengeFile(method, host string) string { return "challenges/" + method + "/" + host }

// A challengeReader looks up open challenges.
type challengeReader struct {
	files *files
	limit *strangers
}

func newChallengeReader(f *files, proxies []netip.Prefix) *challengeReader {
	return &challengeReader{f, newStrangers(challengeRate, challengeBurst, proxies)}
}

var errManyChallenges = errors.New("too many requests for challenges")

// read returns the open challenge of a host. Errors: fs.ErrNotExist if no challenge is open, errManyChallenges if the client has asked for too
// many challenges.
func (r *challengeReader) read(ctx context.Context, client netip.Addr, method, host string) (acme.Challenge, error) {
	var c acme.Challenge
	if binding.CheckHostname(host) != nil {
		return c, fs.ErrNotExist
	}
	if !r.limit.allow(r.files.clock(), client) {
		return c, errManyChallenges
	}
	_, content, err := r.files.load(ctx, challengeFile(method, host))
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(content, &c)
}

// HTTPChallengeHandler answers the authority's requests of HTTP-01 (RFC 8555, section 8.3) and passes all other requests to next. It must be
// served on port 80 of each host, before a redirect to HTTPS.
func (d *Domains) HTTPChallengeHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, is := strings.CutPrefix(r.URL.Path, challengePath)
		if !is || token == "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		c, err := d.challenge.read(r.Context(), limit.ClientAddress(r, d.o.TrustedProxies), methodHTTP, binding.NormalizeHostname(host))
		switch {
		case errors.Is(err, fs.ErrNotExist), err == nil && c.Token != token:
			next.ServeHTTP(w, r)
		case err != nil:
			http.Error(w, "the challenge cannot be looked up now", http.StatusServiceUnavailable)
		default:
			w.Header().Set("Content-Type", "text/plain")
			_, _ = w.Write([]byte(c.KeyAuthorization))
		}
	})
}

// challengeCertificate returns the certificate of TLS-ALPN-01 for a host with an open challenge.
func (d *Domains) challengeCertificate(ctx context.Context, client netip.Addr, host string) (*tls.Certificate, error) {
	c, err := d.challenge.read(ctx, client, methodTLS, host)
	if err != nil {
		return nil, errNoCertificate
	}
	return acmez.TLSALPN01ChallengeCert(c)
}
