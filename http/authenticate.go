package http

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
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// credential is what a key was found to stand for. It is shared by requests and never changes.
type credential struct {
	principal *wirev1.Principal
	// secrets are those that it is opened with: one, or the live access tokens of a grant.
	secrets []secret
	// audience is the resource that an OAuth token is for.
	audience      string
	internalAdmin bool
	*standing
}

// secret is the hash of one, and when it expires in milliseconds since the Unix epoch; 0: never.
type secret struct {
	hash      []byte
	expiresAt int64
}

// standing outlives what is asked about a credential anew each second.
type standing struct {
	// used is when the use was last reported, in milliseconds.
	used atomic.Int64
	rate bucket
}

func (s secret) expired(now time.Time) bool {
	return s.expiresAt != 0 && now.UnixMilli() >= s.expiresAt
}

// expired tells whether nothing opens the credential any more.
func (c *credential) expired(now time.Time) bool {
	for _, s := range c.secrets {
		if !s.expired(now) {
			return false
		}
	}
	return true
}

func (c *credential) matches(k key, now time.Time) bool {
	sum := sha256.Sum256([]byte(k.secret))
	for _, s := range c.secrets {
		if subtle.ConstantTimeCompare(sum[:], s.hash) == 1 && !s.expired(now) {
			return c.principal.GetKind() == k.kind
		}
	}
	return false
}

// authenticator tells who asks. Missing, malformed, unknown, revoked and expired are one error.
type authenticator struct {
	asker Asker
	now   func() time.Time
	// resource is what access tokens must be for (RFC 8707): the server's public address.
	resource string
	known    *cache[*credential]
	slots    chan struct{}
	reports  sync.WaitGroup
}

// knownCredentials bounds how many credentials are remembered.
const knownCredentials = 50_000

func newAuthenticator(asker Asker, now func() time.Time, resource string, counted func(bool)) *authenticator {
	a := &authenticator{asker: asker, now: now, resource: resource, slots: make(chan struct{}, 32)}
	a.known = newCache(now, knownCredentials, counted, a.describe)
	return a
}

// authenticate finds the credential of a key. stranger is asked before anything is looked up for a key that is not
// remembered, and before a wrong secret is answered: guesses are for it to count.
func (a *authenticator) authenticate(ctx context.Context, k key, stranger func() error) (*credential, error) {
	if a.known.find(k.id) == nil {
		if err := stranger(); err != nil {
			return nil, err
		}
	}
	c, err := a.known.lookup(ctx, k.id)
	if err != nil {
		return nil, unauthorizedIfUnknown(err)
	}
	now := a.now()
	if !c.matches(k, now) && k.kind == wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH {
		// The token may be newer than what is remembered of its grant.
		if c, err = a.describe(ctx, k.id, c); err != nil {
			return nil, unauthorizedIfUnknown(err)
		}
	}
	if !c.matches(k, now) {
		if err := stranger(); err != nil {
			return nil, err
		}
		return nil, errUnauthorized
	}
	a.report(c, now)
	return c, nil
}

func unauthorizedIfUnknown(err error) error {
	var refused *entity.Error
	if errors.As(err, &refused) && refused.Code == entity.NotFound {
		return errUnauthorized
	}
	return err
}

// describe asks what an id stands for. What is revoked, or a disabled person's, is as good as unknown.
func (a *authenticator) describe(ctx context.Context, id string, old *credential) (*credential, error) {
	find := a.describeCredential
	if strings.HasPrefix(id, grantKind) {
		find = a.describeGrant
	}
	c, err := find(ctx, id)
	if err != nil {
		return nil, err
	}
	if old != nil {
		c.standing = old.standing
	}
	if c.principal.GetUserId() == "" { // a computer's own
		return c, nil
	}
	person, err := a.standing(ctx, c.principal.GetUserId())
	if err != nil {
		return nil, err
	}
	c.internalAdmin = person.GetInternalAdmin()
	if operator := c.principal.GetImpersonatorId(); operator != "" {
		if err := a.mayImpersonate(ctx, operator); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// standing is how a person stands who is not disabled. Errors: not_found.
func (a *authenticator) standing(ctx context.Context, userID string) (*userv1.Standing, error) {
	person, err := asked[*userv1.Standing](a.asker.Ask(ctx, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.DescribeStanding{},
	}))
	if err == nil && person.GetDisabled() {
		return nil, errNotFound
	}
	return person, err
}

// mayImpersonate refuses who acts as somebody and is no internal admin any more. Errors: not_found.
func (a *authenticator) mayImpersonate(ctx context.Context, userID string) error {
	operator, err := a.standing(ctx, userID)
	if err == nil && !operator.GetInternalAdmin() {
		return errNotFound
	}
	return err
}

func (a *authenticator) describeCredential(ctx context.Context, id string) (*credential, error) {
	found, err := asked[*credentialv1.Credential](a.asker.Ask(ctx, entity.Command{
		Kind: entity.KindCredential, Identity: id, Principal: entity.Platform(),
		Message: &credentialv1.DescribeCredential{},
	}))
	switch {
	case err != nil:
		return nil, err
	case found.GetId() != id || found.GetRevokedAt() != 0 || len(found.GetSecretSha256()) != sha256.Size:
		return nil, errNotFound
	}
	c := &credential{
		principal: &wirev1.Principal{
			Kind: found.GetKind(), CredentialId: id, UserId: found.GetUserId(), Grants: found.GetGrants(),
			WorkspaceId: found.GetWorkspaceId(), ImpersonatorId: found.GetImpersonatorId(),
		},
		secrets:  []secret{{found.GetSecretSha256(), found.GetExpiresAt()}},
		standing: &standing{},
	}
	c.used.Store(found.GetLastUsedAt())
	return c, nil
}

// describeGrant is the credential of a grant's access tokens. It is known by the grant, so that limits and streams
// outlive a token.
func (a *authenticator) describeGrant(ctx context.Context, id string) (*credential, error) {
	found, err := asked[*grantv1.Grant](a.asker.Ask(ctx, entity.Command{
		Kind: entity.KindGrant, Identity: id, Principal: entity.Platform(), Message: &grantv1.DescribeGrant{},
	}))
	switch {
	case err != nil:
		return nil, err
	case found.GetId() != id || found.GetRevokedAt() != 0 || len(found.GetAccess()) == 0:
		return nil, errNotFound
	case strings.TrimSuffix(found.GetAudience(), "/") != a.resource:
		return nil, errNotFound
	}
	c := &credential{
		principal: &wirev1.Principal{
			Kind: wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH, CredentialId: id, UserId: found.GetUserId(),
			Grants: found.GetScopes(), WorkspaceId: found.GetWorkspaceId(),
		},
		audience: found.GetAudience(),
		standing: &standing{},
	}
	for _, token := range found.GetAccess() {
		c.secrets = append(c.secrets, secret{token.GetSecretSha256(), token.GetExpiresAt()})
	}
	c.used.Store(found.GetLastUsedAt())
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

// report notes the use of a credential off the request's path, no more often than is recorded. Under pressure it is left out.
func (a *authenticator) report(c *credential, now time.Time) {
	last, at := c.used.Load(), now.UnixMilli()
	if at-last < entity.UsePrecision.Milliseconds() || !c.used.CompareAndSwap(last, at) {
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
		use := entity.Command{
			Kind: entity.KindCredential, Identity: c.principal.GetCredentialId(), Principal: entity.Platform(),
			Message: &credentialv1.UseCredential{},
		}
		if c.principal.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH {
			use.Kind, use.Message = entity.KindGrant, &grantv1.Use{}
		}
		a.asker.Ask(ctx, use) // what fails is reported again in a minute
	})
}
