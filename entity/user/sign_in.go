package user

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxLinkAge is the longest lifetime of a one-time link.
	MaxLinkAge = 7 * 24 * time.Hour
	// MaxHashLength is the greatest length of a password hash, in bytes.
	MaxHashLength = 512
)

var (
	errLink     = entity.Errorf(entity.LinkInvalid, "the link has been used or replaced, or has expired")
	errLinkLong = entity.Errorf(entity.InvalidRequest, "expiresAt must be within %d days", int(MaxLinkAge.Hours()/24))
	errHash     = entity.Errorf(entity.InvalidRequest, "passwordHash is not an argon2id hash of at most %d bytes", MaxHashLength)
)

// argon2idHash matches hashes of argon2id version 0x13 in the PHC string format (github.com/P-H-C/phc-string-format).
var argon2idHash = regexp.MustCompile(`^\$argon2id\$v=19\$m=[1-9][0-9]{0,9},t=[1-9][0-9]{0,9},p=[1-9][0-9]{0,2}\$[A-Za-z0-9+/]{11,64}\$[A-Za-z0-9+/]{16,86}$`)

// LinkOpens reports whether a one-time link is open at a time and hash is the hash of its secret.
func LinkOpens(link *userv1.OneTimeLink, hash []byte, at int64) bool {
	return at < link.GetExpiresAt() && entity.HashesEqual(link.GetSecretSha256(), hash)
}

// offerLink replaces the open one-time link. A repetition has no effect, unless it requests another mail with the link.
// Errors: invalid_request.
func offerLink(call entity.Call, s *userv1.User, c *userv1.OfferOneTimeLink) ([]userv1.Event, error) {
	link := &userv1.OneTimeLink{SecretSha256: c.GetLink().GetSecretSha256(), ExpiresAt: c.GetLink().GetExpiresAt()}
	if mailID := c.GetLink().GetMailId(); mailID != "" {
		link.MailId, link.MailRequestedAt = mailID, call.At()
	}
	switch {
	case !entity.IsSHA256(link.GetSecretSha256()):
		return nil, errSecret
	case LinkOpens(s.GetOneTimeLink(), link.GetSecretSha256(), call.At()):
		if link.GetMailId() == "" {
			return nil, nil
		}
		link.ExpiresAt = s.GetOneTimeLink().GetExpiresAt() // the same link is mailed again
	case link.GetExpiresAt() <= call.At():
		return nil, errExpiryPast
	case link.GetExpiresAt() > call.At()+MaxLinkAge.Milliseconds():
		return nil, errLinkLong
	}
	return []userv1.Event{&userv1.OneTimeLinkOffered{Link: link, At: call.At()}}, nil
}

// setPassword sets the password, consumes the one-time link and ends all browser sessions. Errors: link_invalid,
// invalid_request.
func setPassword(call entity.Call, s *userv1.User, c *userv1.SetPassword) ([]userv1.Event, error) {
	switch {
	case c.GetPasswordHash() != "" && c.GetPasswordHash() == s.GetPasswordHash():
		// Hashes are salted, so an equal hash means that the command is repeated. The link has been used by then.
		return nil, nil
	case !LinkOpens(s.GetOneTimeLink(), c.GetLinkSecretSha256(), call.At()):
		return nil, errLink
	case len(c.GetPasswordHash()) > MaxHashLength || !argon2idHash.MatchString(c.GetPasswordHash()):
		return nil, errHash
	}
	return []userv1.Event{&userv1.PasswordSet{
		PasswordHash: c.GetPasswordHash(), At: call.At(),
		EndedSessionIds: sessionIDs(s),
	}}, nil
}

// reportLinkMailed completes the task that mails the one-time link. A report of another mail has no effect.
func reportLinkMailed(call entity.Call, s *userv1.User, c *userv1.ReportLinkMailed) []userv1.Event {
	if id := s.GetOneTimeLink().GetMailId(); id == "" || id != c.GetMailId() {
		return nil
	}
	return []userv1.Event{&userv1.OneTimeLinkMailed{MailId: c.GetMailId(), GivenUp: c.GetGivenUp(), At: call.At()}}
}

const (
	// MaxSessions is the greatest number of browser sessions of a user. Starting another session ends the oldest session.
	MaxSessions = 50

	maxUserAgent = 200
	maxAddress   = 64
)

var (
	errSessionID        = entity.Errorf(entity.InvalidRequest, "session id must have 1 to %d bytes", entity.MaxIDLength)
	errNoSuchSession    = entity.Errorf(entity.NotFound, "no such browser session")
	errPasswordReplaced = entity.Errorf(entity.Unauthorized, "the password was changed during the sign-in; sign in again")
)

// startSession starts a browser session. It ends the sessions that have expired, and the oldest sessions if there are too many. Errors: invalid_request,
// unauthorized if the password was changed, and the errors of checkLinked.
func startSession(call entity.Call, s *userv1.User, c *userv1.StartBrowserSession) ([]userv1.Event, error) {
	given := c.GetSession()
	if _, started := s.GetBrowserSessions()[given.GetId()]; started {
		return nil, nil
	}
	switch {
	case !entity.IsID(given.GetId()):
		return nil, errSessionID
	case !entity.IsSHA256(given.GetSecretSha256()):
		return nil, errSecret
	case given.GetExpiresAt() <= call.At():
		return nil, errExpiryPast
	case given.GetExpiresAt() > entity.MaxTime:
		return nil, errExpiryLate
	case c.GetPasswordHash() != "" && c.GetPasswordHash() != s.GetPasswordHash():
		return nil, errPasswordReplaced
	}
	if err := checkLinked(s, c.GetIdentity()); err != nil {
		return nil, err
	}
	started := &userv1.BrowserSessionStarted{UserId: call.Identity, Session: &userv1.BrowserSession{
		Id: given.GetId(), SecretSha256: given.GetSecretSha256(), CreatedAt: call.At(), ExpiresAt: given.GetExpiresAt(),
		UserAgent: truncate(given.GetUserAgent(), maxUserAgent), Address: truncate(given.GetAddress(), maxAddress),
	}}
	// The sessions that have expired end too: while the clock is ahead, some expire that are valid again afterwards.
	kept := newestSessions(s, call.At())
	kept = kept[:min(len(kept), MaxSessions-1)]
	for _, id := range sessionIDs(s) {
		if !slices.ContainsFunc(kept, func(session *userv1.BrowserSession) bool { return session.GetId() == id }) {
			started.EndedSessionIds = append(started.EndedSessionIds, id)
		}
	}
	return []userv1.Event{started}, nil
}

// sessionsAfter returns the browser sessions after e.Session has started, without the sessions that e ends and without expired sessions, which
// events of earlier versions do not name.
func sessionsAfter(s *userv1.User, e *userv1.BrowserSessionStarted) map[string]*userv1.BrowserSession {
	next := entity.With(entity.Without(s.GetBrowserSessions(), e.GetEndedSessionIds()...), e.GetSession().GetId(), e.GetSession())
	maps.DeleteFunc(next, func(id string, session *userv1.BrowserSession) bool {
		return id != e.GetSession().GetId() && session.GetExpiresAt() <= e.GetSession().GetCreatedAt()
	})
	return next
}

// endSession ends a browser session. Errors: not_found.
func endSession(call entity.Call, s *userv1.User, c *userv1.EndBrowserSession) ([]userv1.Event, error) {
	if _, started := s.GetBrowserSessions()[c.GetSessionId()]; !started {
		return nil, errNoSuchSession
	}
	return []userv1.Event{&userv1.BrowserSessionEnded{SessionId: c.GetSessionId(), At: call.At()}}, nil
}

func sessionIDs(s *userv1.User) []string { return slices.Sorted(maps.Keys(s.GetBrowserSessions())) }

// openSessions returns the open browser sessions for their user, without the hashes of their secrets.
func openSessions(call entity.Call, s *userv1.User) *userv1.BrowserSessions {
	shown := &userv1.BrowserSessions{}
	for _, session := range newestSessions(s, call.At()) {
		shown.Sessions = append(shown.Sessions, &userv1.BrowserSession{
			Id: session.GetId(), CreatedAt: session.GetCreatedAt(), ExpiresAt: session.GetExpiresAt(),
			UserAgent: session.GetUserAgent(), Address: session.GetAddress(),
		})
	}
	return shown
}

// newestSessions returns the browser sessions that have not expired, newest first.
func newestSessions(s *userv1.User, at int64) []*userv1.BrowserSession {
	var open []*userv1.BrowserSession
	for _, session := range s.GetBrowserSessions() {
		if session.GetExpiresAt() > at {
			open = append(open, session)
		}
	}
	slices.SortFunc(open, func(a, b *userv1.BrowserSession) int {
		return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), strings.Compare(b.GetId(), a.GetId()))
	})
	return open
}

// truncate returns the first bytes of a text, at most the given number, without invalid UTF-8.
func truncate(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
