package user

import (
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxLinkAge is how far ahead a one-time link may expire.
	MaxLinkAge = 7 * 24 * time.Hour
	// MaxHashLength is in bytes.
	MaxHashLength = 512
)

var (
	errLink     = entity.Errorf(entity.LinkInvalid, "the link was used, replaced or has expired")
	errLinkLong = entity.Errorf(entity.InvalidRequest, "expiresAt must be within %d days", int(MaxLinkAge.Hours()/24))
	errHash     = entity.Errorf(entity.InvalidRequest, "passwordHash is no argon2id hash of at most %d bytes", MaxHashLength)
)

// phc is the string format of password hashes (github.com/P-H-C/phc-string-format), for argon2id of version 0x13.
var phc = regexp.MustCompile(`^\$argon2id\$v=19\$m=[1-9][0-9]{0,9},t=[1-9][0-9]{0,9},p=[1-9][0-9]{0,2}\$[A-Za-z0-9+/]{11,64}\$[A-Za-z0-9+/]{16,86}$`)

// LinkOpens tells whether a secret is that of an open one-time link, in a time that does not depend on the secret.
func LinkOpens(link *userv1.OneTimeLink, secret []byte, at int64) bool {
	return len(secret) == sha256.Size && at < link.GetExpiresAt() &&
		subtle.ConstantTimeCompare(link.GetSecretSha256(), secret) == 1
}

func offerLink(call entity.Call, s *userv1.User, c *userv1.OfferOneTimeLink) ([]userv1.Event, error) {
	link := &userv1.OneTimeLink{SecretSha256: c.GetLink().GetSecretSha256(), ExpiresAt: c.GetLink().GetExpiresAt()}
	if mailID := c.GetLink().GetMailId(); mailID != "" {
		link.MailId, link.MailRequestedAt = mailID, call.At()
	}
	switch {
	case len(link.GetSecretSha256()) != sha256.Size:
		return nil, errSecret
	case LinkOpens(s.GetOneTimeLink(), link.GetSecretSha256(), call.At()):
		if link.GetMailId() == "" {
			return nil, nil
		}
		link.ExpiresAt = s.GetOneTimeLink().GetExpiresAt() // the same link is mailed once more
	case link.GetExpiresAt() <= call.At():
		return nil, errExpiryPast
	case link.GetExpiresAt() > call.At()+MaxLinkAge.Milliseconds():
		return nil, errLinkLong
	}
	return []userv1.Event{&userv1.OneTimeLinkOffered{Link: link, At: call.At()}}, nil
}

func setPassword(call entity.Call, s *userv1.User, c *userv1.SetPassword) ([]userv1.Event, error) {
	switch {
	case c.GetPasswordHash() != "" && c.GetPasswordHash() == s.GetPasswordHash():
		// Hashes are salted: an equal one is the same command again, whose link is used up.
		return nil, nil
	case !LinkOpens(s.GetOneTimeLink(), c.GetLinkSecretSha256(), call.At()):
		return nil, errLink
	case len(c.GetPasswordHash()) > MaxHashLength || !phc.MatchString(c.GetPasswordHash()):
		return nil, errHash
	}
	return []userv1.Event{&userv1.PasswordSet{
		PasswordHash: c.GetPasswordHash(), At: call.At(),
		EndedSessionIds: slices.Sorted(maps.Keys(s.GetBrowserSessions())),
	}}, nil
}
