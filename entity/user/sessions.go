package user

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

const (
	// MaxSessions is how many browser sessions a person may have; a further one ends the oldest.
	MaxSessions = 50

	maxUserAgent = 200
	maxAddress   = 64
)

var (
	errSessionID        = entity.Errorf(entity.InvalidRequest, "session id must have 1 to %d bytes", maxIDLength)
	errNoSuchSession    = entity.Errorf(entity.NotFound, "no such browser session")
	errPasswordReplaced = entity.Errorf(entity.Unauthorized, "another password was set meanwhile")
)

func startSession(call entity.Call, s *userv1.User, c *userv1.StartBrowserSession) ([]userv1.Event, error) {
	given := c.GetSession()
	if _, started := s.GetBrowserSessions()[given.GetId()]; started {
		return nil, nil
	}
	switch {
	case !isID(given.GetId()):
		return nil, errSessionID
	case len(given.GetSecretSha256()) != sha256.Size:
		return nil, errSecret
	case given.GetExpiresAt() <= call.At():
		return nil, errExpiryPast
	case given.GetExpiresAt() > entity.MaxTime:
		return nil, errExpiryLate
	case c.GetPasswordHash() != "" && c.GetPasswordHash() != s.GetPasswordHash():
		return nil, errPasswordReplaced
	}
	linked, err := linkIdentity(call, s, c.GetIdentity())
	if err != nil {
		return nil, err
	}
	started := &userv1.BrowserSessionStarted{UserId: call.Identity, Session: &userv1.BrowserSession{
		Id: given.GetId(), SecretSha256: given.GetSecretSha256(), CreatedAt: call.At(), ExpiresAt: given.GetExpiresAt(),
		UserAgent: cut(given.GetUserAgent(), maxUserAgent), Address: cut(given.GetAddress(), maxAddress),
	}}
	if open := newestSessions(s, call.At()); len(open) >= MaxSessions {
		for _, session := range open[MaxSessions-1:] {
			started.EndedSessionIds = append(started.EndedSessionIds, session.GetId())
		}
	}
	if linked != nil {
		return []userv1.Event{linked, started}, nil
	}
	return []userv1.Event{started}, nil
}

// sessionsAfter drops those that have expired when a further one starts.
func sessionsAfter(s *userv1.User, e *userv1.BrowserSessionStarted) map[string]*userv1.BrowserSession {
	next := entity.With(entity.Without(s.GetBrowserSessions(), e.GetEndedSessionIds()...), e.GetSession().GetId(), e.GetSession())
	maps.DeleteFunc(next, func(id string, session *userv1.BrowserSession) bool {
		return id != e.GetSession().GetId() && session.GetExpiresAt() <= e.GetSession().GetCreatedAt()
	})
	return next
}

func endSession(call entity.Call, s *userv1.User, c *userv1.EndBrowserSession) ([]userv1.Event, error) {
	if _, started := s.GetBrowserSessions()[c.GetSessionId()]; !started {
		return nil, errNoSuchSession
	}
	return []userv1.Event{&userv1.BrowserSessionEnded{SessionId: c.GetSessionId(), At: call.At()}}, nil
}

func shownSessions(call entity.Call, s *userv1.User) *userv1.BrowserSessions {
	shown := &userv1.BrowserSessions{}
	for _, session := range newestSessions(s, call.At()) {
		shown.Sessions = append(shown.Sessions, &userv1.BrowserSession{
			Id: session.GetId(), CreatedAt: session.GetCreatedAt(), ExpiresAt: session.GetExpiresAt(),
			UserAgent: session.GetUserAgent(), Address: session.GetAddress(),
		})
	}
	return shown
}

// newestSessions are those that have not expired, newest first.
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

// cut is the longest valid text of at most so many bytes that a text begins with.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
