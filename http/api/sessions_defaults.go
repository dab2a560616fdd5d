package api

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/retry"
	sessionservice "github.com/atelier-run/atelier/service/session"
)

// defaultView is a default session as JSON.
type defaultView struct {
	Session *sessionDetail `json:"session"`
}

// pathOwner returns the owner in the path, after it has authorized the caller. Errors: not_found, the errors of Authorize.
func pathOwner(c *server.Call) (sessionservice.Owner, error) {
	if err := c.Authorize(); err != nil {
		return sessionservice.Owner{}, err
	}
	name := c.Variable("owner")
	if name == workspace.RootOwner {
		return sessionservice.Owner{ID: name}, nil
	}
	agent, err := describeAgent(c, name)
	return sessionservice.Owner{ID: agent.GetAgent().GetId(), Agent: agent}, err
}

// ofOwner returns a decoder that withholds its errors if the owner in the path does not exist.
func ofOwner[In any](decode func(*server.Call) (In, error)) func(*server.Call) (In, error) {
	return func(c *server.Call) (In, error) {
		in, err := decode(c)
		if err != nil {
			if _, refused := pathOwner(c); refused != nil {
				err = refused
			}
		}
		return in, err
	}
}

func viewDefault(c *server.Call, d *sessionv1.Description) (defaultView, error) {
	if d == nil {
		return defaultView{}, nil
	}
	detail, err := viewDetail(c, d)
	return defaultView{&detail}, err
}

// readDefault returns the default session of the owner in the path.
func (s sessions) readDefault(c *server.Call, _ server.None) (defaultView, error) {
	owner, err := pathOwner(c)
	if err != nil {
		return defaultView{}, err
	}
	found, err := s.request(c).DescribeDefault(c.Context, owner)
	if err != nil {
		return defaultView{}, err
	}
	return viewDefault(c, found)
}

type defaultRequest struct {
	SessionID server.Nullable[string] `json:"sessionId"`
}

func checkDefault(in *defaultRequest) error {
	if !in.SessionID.IsSet {
		return server.Invalid("sessionId is required; null removes the default session")
	}
	return nil
}

var errNoSuchSession = server.Invalid("sessionId must be the id of a session of the workspace")

// chooseDefault makes a session the default of the owner in the path, or none. The session that was the default is not touched.
func (s sessions) chooseDefault(c *server.Call, in defaultRequest) (defaultView, error) {
	owner, err := pathOwner(c)
	if err != nil {
		return defaultView{}, err
	}
	var chosen *sessionv1.Description
	if id := in.SessionID.Value; id != nil {
		if !session.IsID(*id) {
			return defaultView{}, errNoSuchSession
		}
		chosen, err = describeSession(c, *id)
		if entity.HasCode(err, entity.NotFound) {
			return defaultView{}, errNoSuchSession
		}
		if err != nil {
			return defaultView{}, err
		}
	}
	_, err = server.Ask[*workspacev1.DefaultSession](c, workspaceCommand(c, &workspacev1.SetDefaultSession{
		Owner: owner.ID, SessionId: chosen.GetSession().GetId(),
	}))
	if err != nil {
		return defaultView{}, err
	}
	return viewDefault(c, chosen)
}

var errNoDefault = entity.Errorf(entity.NoDefaultSession, "there is no default session yet; a message creates one")

// defaultOfPath returns the owner in the path and the id of its default session. Errors: no_default_session.
func (s sessions) defaultOfPath(c *server.Call) (sessionservice.Owner, string, error) {
	owner, err := pathOwner(c)
	if err != nil {
		return owner, "", err
	}
	found, err := s.request(c).DescribeDefault(c.Context, owner)
	if err == nil && found == nil {
		err = errNoDefault
	}
	return owner, found.GetSession().GetId(), err
}

func (s sessions) defaultHistory(c *server.Call, in timelineRequest) (server.Collection[historyRow], error) {
	_, id, err := s.defaultOfPath(c)
	if err != nil {
		return server.Collection[historyRow]{}, err
	}
	return readHistory(c, id, in)
}

// defaultEvents follows the session that is the default when the request arrives. The stream ends when another session becomes the default,
// and the client, which reconnects with the last id that it has received, gets the rows of that session from its first.
func (s sessions) defaultEvents(c *server.Call) error {
	if _, err := ofOwner(decodeEventsCursor)(c); err != nil {
		return err
	}
	owner, id, err := s.defaultOfPath(c)
	if err != nil {
		return err
	}
	return s.follow(c, id, defaultPositions(c, owner, id), func(ctx context.Context) error {
		return awaitAnotherDefault(c.With(ctx), owner, id)
	})
}

// awaiting has the pauses after which a refused query of a stream is repeated.
var awaiting = retry.Policy{First: 250 * time.Millisecond, Longest: 10 * time.Second}

// awaitAnotherDefault returns when another session than one is the default of an owner. The entity holds the query, and refuses it if it holds
// too many or has failed. The query is then repeated, so that the stream ends at most awaiting.Longest late. Errors: the context's.
func awaitAnotherDefault(c *server.Call, owner sessionservice.Owner, sessionID string) error {
	for range awaiting.Attempts(c.Context) {
		_, err := server.Ask[*workspacev1.DefaultSessions](c, workspaceQuery(c, &workspacev1.ReadDefaultSessions{
			Owner: owner.ID, SessionId: sessionID,
		}))
		if err == nil {
			return nil
		}
	}
	return c.Context.Err()
}

// defaultPositions returns the positions in the stream of the default session of an owner, which contain the id of the session. A position
// in a session that is not the default any more is before the first row of the present default session. Positions in the stream of the
// session itself are valid, too.
func defaultPositions(c *server.Call, owner sessionservice.Owner, sessionID string) positions {
	of, binding := sessionPositions(c, sessionID), server.Binding("default session events", c.Workspace.ID, owner.ID)
	return positions{
		encode: func(seq uint64) string { return c.SealCursor(sessionID+" "+strconv.FormatUint(seq, 10), binding) },
		decode: func(cursor string) (uint64, error) {
			position, err := c.OpenCursor(cursor, binding)
			if err != nil {
				return of.decode(cursor)
			}
			id, seq, _ := strings.Cut(position, " ")
			if id != sessionID {
				return 0, nil
			}
			return parseSeq(seq)
		},
	}
}

// sendToDefault sends a message to the default session of the owner in the path, which the first message creates.
func (s sessions) sendToDefault(c *server.Call, in *sessionInput) (sentView, error) {
	sent, err := s.sendToOwner(c, in)
	if err != nil {
		return sentView{}, err
	}
	_, delivery, err := s.deliver(c, sent)
	return sentView{true, delivery, sent.SessionID}, err
}

func (s sessions) defaultWaiting(c *server.Call) (sessionservice.Accepted, error) {
	in, err := ofOwner(waiting(s.decodeMessage))(c)
	if err != nil {
		return sessionservice.Accepted{}, err
	}
	return s.sendToOwner(c, in)
}

func (s sessions) sendToOwner(c *server.Call, in *sessionInput) (sessionservice.Accepted, error) {
	owner, err := pathOwner(c)
	if err != nil {
		return sessionservice.Accepted{}, err
	}
	if err := in.setDigest(c, "default "+owner.ID); err != nil {
		return sessionservice.Accepted{}, err
	}
	return s.request(c).SendToDefault(c.Context, owner, in.content())
}
