package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/user"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Credential is what a key was found to stand for. It is shared by requests and never changes.
type Credential struct {
	Principal *wirev1.Principal
	// secrets are those that it is opened with: one, or the live access tokens of a grant.
	secrets []secret
	// Audience is the resource that an OAuth token is for.
	Audience      string
	InternalAdmin bool
	*usage
}

// secret is the hash of one, and when it expires in milliseconds since the Unix epoch; 0: never.
type secret struct {
	hash      []byte
	expiresAt int64
}

// standing outlives what is asked about a credential anew each second.
type usage struct {
	// used is when the use was last reported, in milliseconds.
	used atomic.Int64
	rate Bucket
}

func (s secret) expired(now time.Time) bool {
	return s.expiresAt != 0 && now.UnixMilli() >= s.expiresAt
}

// expired tells whether nothing opens the credential any more.
func (c *Credential) expired(now time.Time) bool {
	for _, s := range c.secrets {
		if !s.expired(now) {
			return false
		}
	}
	return true
}

func (c *Credential) matches(k key, now time.Time) bool {
	sum := sha256.Sum256([]byte(k.secret))
	for _, s := range c.secrets {
		if subtle.ConstantTimeCompare(sum[:], s.hash) == 1 && !s.expired(now) {
			return c.Principal.GetKind() == k.kind
		}
	}
	return false
}

// authenticator tells who asks. Missing, malformed, unknown, revoked and expired are one error.
type authenticator struct {
	asker Asker
	now   func() time.Time
	// resource is what access tokens must be for (RFC 8707): the server's public address.
	resource    string
	credentials *cache[*Credential]
	reportSlots chan struct{}
	reports     sync.WaitGroup
}

// knownCredentials bounds how many credentials are remembered.
const maxCredentials = 50_000

func newAuthenticator(asker Asker, now func() time.Time, resource string, counted func(bool)) *authenticator {
	a := &authenticator{asker: asker, now: now, resource: resource, reportSlots: make(chan struct{}, 32)}
	a.credentials = newCache(now, maxCredentials, counted, a.fetch)
	return a
}

// authenticate finds the credential of a key. stranger is asked before anything is looked up for a key that is not
// remembered, and before a wrong secret is answered: guesses are for it to count.
func (a *authenticator) authenticate(ctx context.Context, k key, stranger func() error) (*Credential, error) {
	if a.credentials.load(k.id) == nil {
		if err := stranger(); err != nil {
			return nil, err
		}
	}
	c, err := a.credentials.lookup(ctx, k.id)
	if err != nil {
		return nil, unauthorizedIfUnknown(err)
	}
	now := a.now()
	if !c.matches(k, now) && k.kind == wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH {
		// The token may be newer than what is remembered of its grant.
		if c, err = a.fetch(ctx, k.id, c); err != nil {
			return nil, unauthorizedIfUnknown(err)
		}
	}
	if !c.matches(k, now) {
		if err := stranger(); err != nil {
			return nil, err
		}
		return nil, ErrUnauthorized
	}
	a.reportUse(c, now)
	return c, nil
}

func unauthorizedIfUnknown(err error) error {
	var refused *entity.Error
	if errors.As(err, &refused) && refused.Code == entity.NotFound {
		return ErrUnauthorized
	}
	return err
}

// describe asks what an id stands for. What is revoked, or a disabled person's, is as good as unknown.
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
	if c.Principal.GetUserId() == "" { // a computer's own
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

// standing is how a person stands who is not disabled. Errors: not_found.
func (a *authenticator) accountStatus(ctx context.Context, userID string) (*userv1.Standing, error) {
	person, err := typed[*userv1.Standing](a.asker.Ask(ctx, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.DescribeStanding{},
	}))
	if err == nil && person.GetDisabled() {
		return nil, ErrNotFound
	}
	return person, err
}

// mayImpersonate refuses who acts as somebody and is no internal admin any more. Errors: not_found.
func (a *authenticator) checkImpersonator(ctx context.Context, userID string) error {
	operator, err := a.accountStatus(ctx, userID)
	if err == nil && !operator.GetInternalAdmin() {
		return ErrNotFound
	}
	return err
}

func (a *authenticator) fetchCredential(ctx context.Context, id string) (*Credential, error) {
	found, err := typed[*credentialv1.Credential](a.asker.Ask(ctx, entity.Command{
		Kind: entity.KindCredential, Identity: id, Principal: entity.Platform(),
		Message: &credentialv1.DescribeCredential{},
	}))
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
		},
		secrets: []secret{{found.GetSecretSha256(), found.GetExpiresAt()}},
		usage:   &usage{},
	}
	c.used.Store(found.GetLastUsedAt())
	return c, nil
}

// describeGrant is the credential of a grant's access tokens. It is known by the grant, so that limits and streams
// outlive a token.
func (a *authenticator) fetchGrant(ctx context.Context, id string) (*Credential, error) {
	found, err := typed[*grantv1.Grant](a.asker.Ask(ctx, entity.Command{
		Kind: entity.KindGrant, Identity: id, Principal: entity.Platform(), Message: &grantv1.DescribeGrant{},
	}))
	switch {
	case err != nil:
		return nil, err
	case found.GetId() != id || found.GetRevokedAt() != 0 || len(found.GetAccess()) == 0:
		return nil, ErrNotFound
	case strings.TrimSuffix(found.GetAudience(), "/") != a.resource:
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

// current asks again, past what is remembered, whether a credential still stands.
func (a *authenticator) revalidate(ctx context.Context, c *Credential) error {
	if c.expired(a.now()) {
		return ErrUnauthorized
	}
	_, err := a.fetch(ctx, c.Principal.GetCredentialId(), c)
	return unauthorizedIfUnknown(err)
}

// report notes the use of a credential off the request's path, no more often than is recorded. Under pressure it is left out.
func (a *authenticator) reportUse(c *Credential, now time.Time) {
	last, at := c.used.Load(), now.UnixMilli()
	if at-last < entity.UsePrecision.Milliseconds() || !c.used.CompareAndSwap(last, at) {
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
		ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
		defer cancel()
		use := entity.Command{
			Kind: entity.KindCredential, Identity: c.Principal.GetCredentialId(), Principal: entity.Platform(),
			Message: &credentialv1.UseCredential{},
		}
		if c.Principal.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH {
			use.Kind, use.Message = entity.KindGrant, &grantv1.Use{}
		}
		a.asker.Ask(ctx, use) // what fails is reported again in a minute
	})
}

// ForgetPerson forgets what is remembered of each credential of a person, and of each with which they impersonate somebody.
// With end, streams with those credentials end.
func (c *Call) InvalidateUser(userID string, end bool) {
	known := c.server.authenticator.credentials
	known.invalidate(userID) // answers on their way are not kept
	known.invalidateMisses() // keys of disabled people are among them
	known.entries.Range(func(id, found any) bool {
		of := found.(*cacheEntry[*Credential]).value.Principal
		if of.GetUserId() == userID || of.GetImpersonatorId() == userID {
			known.invalidate(id.(string))
			if end {
				c.server.watch.end(id.(string))
			}
		}
		return true
	})
}

// EndCredential forgets what is remembered of a credential or grant, and ends its streams: it opens nothing here any more.
func (s *Server) EndCredential(id string) {
	s.authenticator.credentials.invalidate(id)
	s.watch.end(id)
}
