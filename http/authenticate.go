package http

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/atelier-run/atelier/entity"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// credential is what a key was found to stand for. It is shared by requests and never changes.
type credential struct {
	principal *wirev1.Principal
	hash      []byte
	// expiresAt in milliseconds; 0: never.
	expiresAt int64
	*standing
}

// standing outlives what is asked about a credential anew each second.
type standing struct {
	// used is when the use was last reported, in milliseconds.
	used atomic.Int64
	rate bucket
}

func (c *credential) expired(now time.Time) bool {
	return c.expiresAt != 0 && now.UnixMilli() >= c.expiresAt
}

func (c *credential) matches(secret string) bool {
	sum := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(sum[:], c.hash) == 1
}

// authenticator tells who asks. Missing, malformed, unknown, revoked and expired are one error.
type authenticator struct {
	asker   Asker
	now     func() time.Time
	known   *cache[*credential]
	slots   chan struct{}
	reports sync.WaitGroup
}

// knownCredentials bounds how many credentials are remembered.
const knownCredentials = 50_000

func newAuthenticator(asker Asker, now func() time.Time, counted func(bool)) *authenticator {
	a := &authenticator{asker: asker, now: now, slots: make(chan struct{}, 32)}
	a.known = newCache(now, knownCredentials, counted, a.describe)
	return a
}

// authenticate finds the credential of a request; basic also admits it as the password of HTTP Basic.
func (a *authenticator) authenticate(r *http.Request, basic bool) (*credential, error) {
	keyID, secret, ok := parseKey(presented(r, basic))
	if !ok {
		return nil, errUnauthorized
	}
	c, err := a.known.lookup(r.Context(), keyID)
	if err != nil {
		return nil, unauthorizedIfUnknown(err)
	}
	now := a.now()
	if !c.matches(secret) || c.expired(now) {
		return nil, errUnauthorized
	}
	a.report(c, now)
	return c, nil
}

// presented is the key that a request carries, if any.
func presented(r *http.Request, basic bool) string {
	header := r.Header["Authorization"]
	if len(header) != 1 {
		return ""
	}
	if _, password, ok := r.BasicAuth(); ok {
		if basic {
			return password
		}
		return ""
	}
	scheme, key, _ := strings.Cut(header[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.Trim(key, " ")
}

func unauthorizedIfUnknown(err error) error {
	var refused *entity.Error
	if errors.As(err, &refused) && refused.Code == entity.NotFound {
		return errUnauthorized
	}
	return err
}

// describe asks what a key stands for. One that is revoked is as good as unknown.
func (a *authenticator) describe(ctx context.Context, keyID string, old *credential) (*credential, error) {
	found, err := asked[*credentialv1.Credential](a.asker.Ask(ctx, entity.Command{
		Kind: entity.KindCredential, Identity: keyID, Principal: entity.Platform(),
		Message: &credentialv1.DescribeCredential{},
	}))
	switch {
	case err != nil:
		return nil, err
	case found.GetId() != keyID || found.GetRevokedAt() != 0 || len(found.GetSecretSha256()) != sha256.Size:
		return nil, errNotFound
	}
	c := &credential{
		principal: &wirev1.Principal{Kind: found.GetKind(), CredentialId: keyID, UserId: found.GetUserId()},
		hash:      found.GetSecretSha256(),
		expiresAt: found.GetExpiresAt(),
		standing:  &standing{},
	}
	c.used.Store(found.GetLastUsedAt())
	if old != nil {
		c.standing = old.standing
	}
	return c, nil
}

// current asks again, past what is remembered, whether a credential still stands.
func (a *authenticator) current(ctx context.Context, c *credential) error {
	if c.expired(a.now()) {
		return errUnauthorized
	}
	_, err := a.describe(ctx, c.principal.GetCredentialId(), c)
	return unauthorizedIfUnknown(err)
}

// report notes the use of a credential off the request's path, at most once a minute. Under pressure it is left out.
func (a *authenticator) report(c *credential, now time.Time) {
	last, at := c.used.Load(), now.UnixMilli()
	if at-last < time.Minute.Milliseconds() || !c.used.CompareAndSwap(last, at) {
		return
	}
	select {
	case a.slots <- struct{}{}:
	default:
		c.used.Store(last)
		return
	}
	a.reports.Go(func() {
		defer func() { <-a.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
		defer cancel()
		a.asker.Ask(ctx, entity.Command{ // what fails is reported again in a minute
			Kind: entity.KindCredential, Identity: c.principal.GetCredentialId(), Principal: entity.Platform(),
			Message: &credentialv1.UseCredential{},
		})
	})
}
