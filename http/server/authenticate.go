package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/atelier-run/atelier/cache"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/limit"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Credential is a credential that was looked up. Requests share it, and it never changes, except for its usage.
type Credential struct {
	Principal *wirev1.Principal
	// secrets open the credential: one, or the live access tokens of a grant.
	secrets []secret
	// Audience is the resource that an OAuth token was issued for (RFC 8707).
	Audience      string
	InternalAdmin bool
	*usage
}

// secret is the SHA-256 of a secret and its expiry in milliseconds since the Unix epoch; 0: it does not expire.
type secret struct {
	hash      []byte
	expiresAt int64
}

// usage is the part of a credential that is carried over each time the credential is fetched again.
type usage struct {
	// used is the time of the last reported use, in milliseconds since the Unix epoch.
	used atomic.Int64
	rate limit.Bucket
}

func (s secret) expired(now time.Time) bool {
	return s.expiresAt != 0 && now.UnixMilli() >= s.expiresAt
}

// expired reports whether all secrets of the credential have expired.
func (c *Credential) expired(now time.Time) bool {
	for _, s := range c.secrets {
		if !s.expired(now) {
			return false
		}
	}
	return true
}

// appSecret returns the hash of the secret of an app's credential, which a later one replaces; empty for other kinds.
func (c *Credential) appSecret() string {
	if c.Principal.GetKind() != wirev1.CredentialKind_CREDENTIAL_KIND_APP {
		return ""
	}
	return string(c.secrets[0].hash)
}

// matches reports whether the key has one of the credential's live secrets and is of its kind. It compares in constant time.
func (c *Credential) matches(k key, now time.Time) bool {
	sum := sha256.Sum256([]byte(k.secret))
	for _, s := range c.secrets {
		if subtle.ConstantTimeCompare(sum[:], s.hash) == 1 && !s.expired(now) {
			return c.Principal.GetKind() == k.kind
		}
	}
	return false
}

// authenticator looks up credentials. It has one error for missing, malformed, unknown, revoked and expired credentials, so
// that clients cannot distinguish them.
type authenticator struct {
	asker entity.AskSettler
	now   func() time.Time
	// resource is the server's public address, which access tokens must have as their audience, or a resource of the server
	// below it (RFC 8707). Call.authenticate compares the latter with the resource of the operation.
	resource    string
	credentials *cache.Cache[*Credential]
	// reportSlots bounds the number of reports of use in flight.
	reportSlots chan struct{}
	reports     sync.WaitGroup
}

// maxCredentials bounds the cache of credentials.
const maxCredentials = 50_000

// reportTime bounds a report of a use.
const reportTime = 5 * time.Second

func newAuthenticator(asker entity.AskSettler, now func() time.Time, resource string, counted func(bool)) *authenticator {
	a := &authenticator{asker: asker, now: now, resource: resource, reportSlots: make(chan struct{}, 32)}
	a.credentials = cache.New(now, maxCredentials, counted, a.fetch)
	return a
}

// authenticate returns the credential of a key. It calls limitUnknown before it looks up a key that is not cached, and
// before it refuses a wrong secret, so that guesses are counted against the client's address. Errors: unauthorized, the
// errors of limitUnknown, unavailable.
func (a *authenticator) authenticate(ctx context.Context, k key, limitUnknown func() error) (*Credential, error) {
	if !a.credentials.Has(k.id) {
		if err := limitUnknown(); err != nil {
			return nil, err
		}
	}
	c, err := a.credentials.Lookup(ctx, k.id)
	if entity.HasCode(err, entity.NotFound) && k.kind == wirev1.CredentialKind_CREDENTIAL_KIND_APP {
		// The app may have got a key after its last one was revoked, which the cache remembers.
		c, err = a.fetch(ctx, k.id, nil)
	}
	if err != nil {
		return nil, unauthorizedIfUnknown(err)
	}
	now := a.now()
	if !c.matches(k, now) && hasSeveralSecrets(k.kind) {
		// The token may have been issued after the grant, or the credential of the app, was cached.
		if c, err = a.fetch(ctx, k.id, c); err != nil {
			return nil, unauthorizedIfUnknown(err)
		}
	}
	if !c.matches(k, now) {
		if err := limitUnknown(); err != nil {
			return nil, err
		}
		return nil, ErrUnauthorized
	}
	a.reportUse(c, now)
	return c, nil
}

// hasSeveralSecrets reports whether credentials of a kind get new secrets: the access tokens of a grant, and the keys of an app.
func hasSeveralSecrets(kind wirev1.CredentialKind) bool {
	return kind == wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH || kind == wirev1.CredentialKind_CREDENTIAL_KIND_APP
}

// isFor reports whether a credential may be used for a resource of the server; empty: the API.
func (a *authenticator) isFor(c *Credential, resource string) bool {
	audience := strings.TrimSuffix(c.Audience, "/")
	return audience == "" || audience == a.resource || resource != "" && audience == a.resource+resource
}

// unauthorizedIfUnknown returns ErrUnauthorized for not_found, and any other error as it is.
func unauthorizedIfUnknown(err error) error {
	if entity.HasCode(err, entity.NotFound) {
		return ErrUnauthorized
	}
	return err
}

// fetch looks up the credential or grant with an id, and its user's status. It carries over the usage of old. Errors:
// not_found, also if the credential was revoked or its user is disabled.
func (a *authenticator) fetch(ctx context.Context, id string, old *Credential) (*Credential, error) {
	find := a.fetchCredential
	if strings.HasPrefix(id, user.GrantPrefix) {
		find = a.fetchGrant
	}
	c, err := find(ctx, id)
	if err != nil {
		return nil, err
	}
	if old != nil {
		c.usage = old.usage
	}
	if c.Principal.GetUserId() == "" { // a computer
		return c, nil
	}
	person, err := a.accountStatus(ctx, c.Principal.GetUserId())
	if err != nil {
		return nil, err
	}
	c.InternalAdmin = person.GetInternalAdmin()
	if operator := c.Principal.GetImpersonatorId(); operator != "" {
		if err := a.checkImpersonator(ctx, operator); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// accountStatus returns the account's status. Errors: not_found if the account does not exist or is disabled.
func (a *authenticator) accountStatus(ctx context.Context, userID string) (*userv1.Standing, error) {
	person, err := entity.AskAsPlatform[*userv1.Standing](ctx, a.asker, entity.KindUser, userID, &userv1.DescribeStanding{})
	if err == nil && person.GetDisabled() {
		return nil, ErrNotFound
	}
	return person, err
}

// checkImpersonator checks that the user who impersonates another is still an internal admin. Errors: not_found.
func (a *authenticator) checkImpersonator(ctx context.Context, userID string) error {
	operator, err := a.accountStatus(ctx, userID)
	if err == nil && !operator.GetInternalAdmin() {
		return ErrNotFound
	}
	return err
}

// fetchCredential looks up an API key, session, app, computer or impersonation. Errors: not_found, also if it was revoked.
func (a *authenticator) fetchCredential(ctx context.Context, id string) (*Credential, error) {
	found, err := entity.AskAsPlatform[*credentialv1.Credential](ctx, a.asker, entity.KindCredential, id, &credentialv1.DescribeCredential{})
	switch {
	case err != nil:
		return nil, err
	case found.GetId() != id || found.GetRevokedAt() != 0 || len(found.GetSecretSha256()) != sha256.Size:
		return nil, ErrNotFound
	}
	c := &Credential{
		Principal: &wirev1.Principal{
			Kind: found.GetKind(), CredentialId: id, UserId: found.GetUserId(), Grants: found.GetGrants(),
			WorkspaceId: found.GetWorkspaceId(), ImpersonatorId: found.GetImpersonatorId(),
			WorkspaceIds: found.GetWorkspaceIds(), ReadOnly: found.GetReadOnly(),
		},
		secrets: []secret{{found.GetSecretSha256(), found.GetExpiresAt()}},
		usage:   &usage{},
	}
	if found.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY {
		c.Principal.ExpiresAt = found.GetExpiresAt()
	}
	c.used.Store(found.GetLastUsedAt())
	return c, nil
}

// fetchGrant returns the credential of a grant's access tokens. Its id is the grant's, so that rate limits and streams
// outlast each token. Errors: not_found, also if the grant was revoked or is for another resource.
func (a *authenticator) fetchGrant(ctx context.Context, id string) (*Credential, error) {
	found, err := entity.AskAsPlatform[*grantv1.Grant](ctx, a.asker, entity.KindGrant, id, &grantv1.DescribeGrant{})
	switch {
	case err != nil:
		return nil, err
	case found.GetId() != id || found.GetRevokedAt() != 0 || len(found.GetAccess()) == 0:
		return nil, ErrNotFound
	case strings.TrimSuffix(found.GetAudience(), "/") != a.resource && !strings.HasPrefix(found.GetAudience(), a.resource+"/"):
		return nil, ErrNotFound
	}
	c := &Credential{
		Principal: &wirev1.Principal{
			Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, CredentialId: id, UserId: found.GetUserId(),
			Grants: found.GetScopes(), WorkspaceId: found.GetWorkspaceId(),
		},
		Audience: found.GetAudience(),
		usage:    &usage{},
	}
	for _, token := range found.GetAccess() {
		c.secrets = append(c.secrets, secret{token.GetSecretSha256(), token.GetExpiresAt()})
	}
	c.used.Store(found.GetLastUsedAt())
	return c, nil
}

// revalidate looks up a credential again, without the cache. A grant is valid as long as it has an access token, which may be a
// later one than c has. The credential of an app is valid until its secret is replaced. Errors: unauthorized if the credential is no
// longer valid.
func (a *authenticator) revalidate(ctx context.Context, c *Credential) error {
	if c.Principal.GetKind() != wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH && c.expired(a.now()) {
		return ErrUnauthorized
	}
	found, err := a.fetch(ctx, c.Principal.GetCredentialId(), c)
	if err == nil && (found.expired(a.now()) || found.appSecret() != c.appSecret()) {
		return ErrUnauthorized
	}
	return unauthorizedIfUnknown(err)
}

// reportUse tells the entity of the credential, in the background, that it was used. It reports at most one use in each
// entity.UsePrecision, and none while too many reports are in flight.
func (a *authenticator) reportUse(c *Credential, now time.Time) {
	last, at := c.used.Load(), now.UnixMilli()
	if entity.IsUseRecorded(last, at) || !c.used.CompareAndSwap(last, at) {
		return
	}
	select {
	case a.reportSlots <- struct{}{}:
	default:
		c.used.Store(last)
		return
	}
	a.reports.Go(func() {
		defer func() { <-a.reportSlots }()
		ctx, cancel := context.WithTimeout(context.Background(), reportTime)
		defer cancel()
		use := entity.Command{
			Kind: entity.KindCredential, Identity: c.Principal.GetCredentialId(), Principal: entity.Platform(),
			Message: &credentialv1.UseCredential{},
		}
		if c.Principal.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH {
			use.Kind, use.Message = entity.KindGrant, &grantv1.Use{}
		}
		a.asker.Ask(ctx, use) // after a failure the next use is reported within entity.UsePrecision
	})
}

// InvalidateUser removes from the cache each credential of a user, and each credential of an impersonation by the user.
// If end is true, streams and transfers with those credentials end.
func (c *Call) InvalidateUser(userID string, end bool) {
	known := c.server.authenticator.credentials
	known.Invalidate(userID) // so that results of look-ups in flight are not stored
	known.InvalidateMisses() // keys of disabled users are cached as misses
	known.Range(func(id string, found *Credential) bool {
		of := found.Principal
		if of.GetUserId() == userID || of.GetImpersonatorId() == userID {
			known.Invalidate(id)
			if end {
				c.server.watcher.end(id)
			}
		}
		return true
	})
}

// EndCredential removes a credential or grant from the cache, and ends its streams and transfers. It is called after the
// credential was revoked: from then on this process refuses it.
func (s *Server) EndCredential(id string) {
	s.authenticator.credentials.Invalidate(id)
	s.watcher.end(id)
}
