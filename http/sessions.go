package http

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	// sessionTime is how long a browser stays signed in.
	sessionTime = 30 * 24 * time.Hour
	// userAgentBytes is what is kept of what a browser says it is.
	userAgentBytes = 200
)

// signIn starts a session of a person, by what let them in, and has the browser keep its key. The browser's session before
// it ends. Errors: unauthorized where the password was replaced meanwhile, forbidden for another subject than the person's.
func (c *call) signIn(userID string, by *userv1.StartBrowserSession) error {
	s := c.server
	before, err := c.visitor() // who cannot be told, or asks too often, starts none
	if err != nil {
		return err
	}
	id := s.options.NewID(keyKind)
	text, hash := newKey(sessionStart, id)
	by.Session = &userv1.BrowserSession{
		Id: id, SecretSha256: hash, ExpiresAt: s.now().Add(sessionTime).UnixMilli(),
		UserAgent: cut(c.r.UserAgent(), userAgentBytes), Address: c.address().String(),
	}
	if _, err := ask[proto.Message](c, c.asPlatform(entity.KindUser, userID, by)); err != nil {
		return err
	}
	if err := c.settle(entity.KindUser, userID); err != nil {
		return err
	}
	if before != nil {
		if err := c.endOwnSession(before.principal.GetCredentialId()); err != nil {
			return err
		}
	}
	c.setCookie(s.cookieName(), text, sessionTime)
	return nil
}

// setCookie has the browser keep a text for a time; without one it forgets it. Lax: a link from elsewhere finds its
// visitor signed in, a form from elsewhere does not.
func (c *call) setCookie(name, value string, age time.Duration) {
	seconds := int(age / time.Second)
	if value == "" {
		seconds = -1
	}
	http.SetCookie(c.w, &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true,
		Secure: strings.HasPrefix(name, "__Host-"), SameSite: http.SameSiteLaxMode,
	})
}

// endSession answers when the session opens nothing here any more; elsewhere it is a matter of a second. One that has
// ended is no error.
func (c *call) endSession(as *wirev1.Principal, userID, sessionID string) error {
	_, err := ask[proto.Message](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: as, ID: c.server.options.NewID("cmd_"),
		Message: &userv1.EndBrowserSession{SessionId: sessionID},
	})
	if err != nil && !refusedWith(err, entity.NotFound) {
		return err
	}
	if err := c.settle(entity.KindUser, userID); err != nil {
		return err
	}
	c.server.forgetCredential(sessionID)
	return nil
}

// endOwnSession ends one of the visitor's.
func (c *call) endOwnSession(sessionID string) error {
	return c.endSession(c.caller.principal, c.caller.principal.GetUserId(), sessionID)
}

// sessionsOf are a person's.
func (c *call) sessionsOf(userID string) ([]*userv1.BrowserSession, error) {
	found, err := ask[*userv1.BrowserSessions](c, entity.Command{
		Kind: entity.KindUser, Identity: userID, Principal: entity.Platform(), Message: &userv1.ListBrowserSessions{},
	})
	return found.GetSessions(), err
}

// signOut ends the browser's session, if there is one.
func (s *Server) signOut(c *call) (sheet, error) {
	form, err := c.form()
	if err != nil {
		return sheet{}, err
	}
	visitor, err := c.visitor()
	if err != nil {
		return sheet{}, err
	}
	if visitor != nil {
		if err := c.endOwnSession(visitor.principal.GetCredentialId()); err != nil {
			return sheet{}, err
		}
	}
	c.setCookie(s.cookieName(), "", 0)
	if next := form.Get("next"); next != "" {
		return sheet{to: localPath(next)}, nil
	}
	return sheet{to: signInPath}, nil
}

// closeSession ends one of the visitor's sessions.
func (s *Server) closeSession(c *call) (sheet, error) {
	id := c.variable("sessionId")
	if !isID(id, keyKind) {
		return sheet{}, errNotFound
	}
	if err := c.endOwnSession(id); err != nil {
		return sheet{}, err
	}
	if id == c.caller.principal.GetCredentialId() {
		c.setCookie(s.cookieName(), "", 0)
		return sheet{to: signInPath}, nil
	}
	return sheet{to: accountPath + "?done=session"}, nil
}

// browser is what people call what a browser says it is; where it is none of these, what it says.
func browser(agent string) string {
	name, system := "", ""
	for _, known := range [][2]string{{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}} {
		if name == "" && strings.Contains(agent, known[0]) {
			name = known[1]
		}
	}
	for _, known := range [][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"}} {
		if system == "" && strings.Contains(agent, known[0]) {
			system = known[1]
		}
	}
	switch {
	case name != "" && system != "":
		return name + " on " + system
	case name != "":
		return name
	}
	return agent
}

// isID tells whether text is an id of a kind.
func isID(text, kind string) bool {
	id, ok := strings.CutPrefix(text, kind)
	return ok && entity.IsULID(id)
}

// cut is the longest valid text of at most so many bytes that a text begins with.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}
