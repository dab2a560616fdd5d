package api

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/entity/workspace"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/retry"
)

// The default session of an owner, which is an agent or the root of the drive, is a pointer of the workspace:
//
//  1. Without a pointer, the first message binds the owner to the id of a session that does not exist yet
//     (BindDefaultSession). Of several first messages, one binds its id, and the others are sent to that session.
//  2. SendInput with StartSession creates the session with the message as its prompt, or adds the message to it. If the process
//     ends between the two steps, the next message creates the session.
//  3. A deletion clears the pointer if it still points at the deleted session.
//
// A repeated request finds its input by the owner and the request id (findSent), whatever session is the default by then.

// defaultView is a default session as JSON.
type defaultView struct {
	Session *sessionDetail `json:"session"`
}

// defaultOwner is the owner of a default session.
type defaultOwner struct {
	// id is workspace.RootOwner, or the id of an agent.
	id string
	// agent is nil for the root.
	agent *workspacev1.Anchor
}

// pathOwner returns the owner in the path, after it has authorized the caller. Errors: not_found, those of Authorize.
func pathOwner(c *server.Call) (defaultOwner, error) {
	if err := c.Authorize(); err != nil {
		return defaultOwner{}, err
	}
	name := c.Variable("owner")
	if name == workspace.RootOwner {
		return defaultOwner{id: name}, nil
	}
	agent, err := describeAgent(c, name)
	return defaultOwner{agent.GetAgent().GetId(), agent}, err
}

// ofOwner returns a decoder whose errors are withheld if the owner in the path does not exist.
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

// boundSession returns the id of the default session of an owner; "" if it has none.
func boundSession(c *server.Call, o defaultOwner) (string, error) {
	found, err := server.Ask[*workspacev1.DefaultSessions](c, workspaceQuery(c, &workspacev1.ReadDefaultSessions{}))
	return found.GetSessions()[o.id], err
}

// describeDefault describes the default session of an owner, as the caller. It returns nil if there is none that the caller sees.
func describeDefault(c *server.Call, o defaultOwner) (*sessionv1.Description, error) {
	id, err := boundSession(c, o)
	if err != nil || id == "" {
		return nil, err
	}
	found, err := describeSession(c, id)
	if entity.HasCode(err, entity.NotFound) {
		return nil, nil
	}
	return found, err
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
	found, err := describeDefault(c, owner)
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
		Owner: owner.id, SessionId: chosen.GetSession().GetId(),
	}))
	if err != nil {
		return defaultView{}, err
	}
	return viewDefault(c, chosen)
}

var errNoDefault = entity.Errorf(entity.NoDefaultSession, "there is no default session yet; a message creates one")

// defaultOfPath returns the owner in the path and the id of its default session. Errors: no_default_session.
func defaultOfPath(c *server.Call) (defaultOwner, string, error) {
	owner, err := pathOwner(c)
	if err != nil {
		return owner, "", err
	}
	found, err := describeDefault(c, owner)
	if err == nil && found == nil {
		err = errNoDefault
	}
	return owner, found.GetSession().GetId(), err
}

func (s sessions) defaultHistory(c *server.Call, in timelineRequest) (server.Collection[historyRow], error) {
	_, id, err := defaultOfPath(c)
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
	owner, id, err := defaultOfPath(c)
	if err != nil {
		return err
	}
	return s.follow(c, id, defaultPositions(c, owner, id), func(follow followFunc) followFunc {
		return func(ctx context.Context) error {
			ctx, end := context.WithCancel(ctx)
			defer end()
			go func() {
				if awaitAnotherDefault(c.With(ctx), owner, id) == nil {
					end()
				}
			}()
			return follow(ctx)
		}
	})
}

// awaiting has the pauses after which a refused query of a stream is repeated.
var awaiting = retry.Policy{First: 250 * time.Millisecond, Longest: 10 * time.Second}

// awaitAnotherDefault returns when another session than one is the default of an owner. The entity holds the query, and refuses it if it holds
// too many or has failed. The query is then repeated, so that the stream ends at most awaiting.Longest late. Errors: the context's.
func awaitAnotherDefault(c *server.Call, owner defaultOwner, sessionID string) error {
	for range awaiting.Attempts(c.Context) {
		_, err := server.Ask[*workspacev1.DefaultSessions](c, workspaceQuery(c, &workspacev1.ReadDefaultSessions{
			Owner: owner.id, SessionId: sessionID,
		}))
		if err == nil {
			return nil
		}
	}
	return c.Context.Err()
}

// defaultPositions returns the positions in the stream of the default session of an owner, which contain the id of the session. A position
// in a session that is not the default any more is before the first row of the one that is. Positions in the stream of the session itself
// are valid, too.
func defaultPositions(c *server.Call, owner defaultOwner, sessionID string) positions {
	of, binding := sessionPositions(c, sessionID), server.Binding("default session events", c.Workspace.ID, owner.id)
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
	return sentView{true, delivery, sent.sessionID}, err
}

func (s sessions) defaultWaiting(c *server.Call) (accepted, error) {
	in, err := ofOwner(waiting(s.decodeMessage))(c)
	if err != nil {
		return accepted{}, err
	}
	return s.sendToOwner(c, in)
}

func (s sessions) sendToOwner(c *server.Call, in *sessionInput) (accepted, error) {
	owner, err := pathOwner(c)
	if err != nil {
		return accepted{}, err
	}
	in.input.DefaultOwner = owner.id
	if err := in.setDigest(c, "default "+owner.id); err != nil {
		return accepted{}, err
	}
	if earlier, found, err := findSent(c, owner, in); found || err != nil {
		return earlier, err
	}
	if bound, err := describeDefault(c, owner); err != nil {
		return accepted{}, err
	} else if bound != nil {
		sent, err := s.send(c, bound.GetSession().GetId(), in, nil)
		if !entity.HasCode(err, entity.NotFound) {
			return sent, err
		}
	}
	// There is no session, or it was deleted meanwhile.
	start, err := s.startDefault(c, owner, in)
	if err != nil {
		return accepted{}, err
	}
	var sent accepted
	for range 2 {
		id, err := s.bindDefault(c, owner, in)
		if err != nil {
			return accepted{}, err
		}
		if sent, err = s.send(c, id, in, start); !entity.HasCode(err, entity.NotFound) || !isDeleted(c, id) {
			return sent, err
		}
		// The session is being deleted, and the pointer at it is not cleared yet.
		_, err = server.Ask[proto.Message](c, PlatformCommand(c, entity.KindWorkspace, c.Workspace.ID,
			&workspacev1.ClearDefaultSession{SessionId: id}))
		if err != nil {
			return accepted{}, err
		}
	}
	return accepted{}, server.ErrNotFound // the session of an earlier request with the same id was deleted
}

// findSent returns the input that an earlier request with the same id has sent to the default session of an owner, also if another
// session is the default by now. Errors: those of findRequest.
func findSent(c *server.Call, o defaultOwner, in *sessionInput) (_ accepted, found bool, err error) {
	requestID := in.input.GetClientRequestId()
	if requestID == "" {
		return accepted{}, false, nil
	}
	row, err := findRequestRow(c, session.OwnerKey(o.id, session.SenderOf(c.Caller.Principal), requestID), requestID)
	if err != nil {
		return accepted{}, false, err
	}
	sent := row.GetSessionId()
	if row == nil { // the id may have started a session otherwise, which must not become a default
		sent = derivedSession(c, in)
	}
	return findRequest(c, sent, in.input)
}

// startDefault returns the command that creates the default session of an owner with its first message.
func (s sessions) startDefault(c *server.Call, o defaultOwner, in *sessionInput) (*sessionv1.StartSession, error) {
	start := &sessionv1.StartSession{Mode: sessionv1.Mode_MODE_AUTO, Tier: in.input.GetTier(), AgentId: o.agent.GetAgent().GetId()}
	w, err := describePathWorkspace(c)
	if err != nil {
		return nil, err
	}
	start.DefaultTier = effectiveTier(w)
	if o.agent == nil {
		return start, nil
	}
	agent, err := refreshAgent(c, s.skills, o.agent)
	startAgent(start, agent)
	return start, err
}

// bindDefault returns the id of the default session of an owner. If it has none, a new id becomes the default: the same id for a
// repeated request with a request id.
func (s sessions) bindDefault(c *server.Call, o defaultOwner, in *sessionInput) (string, error) {
	id, err := boundSession(c, o)
	if err != nil || id != "" {
		return id, err
	}
	id = c.NewID(session.IDPrefix)
	if in.input.GetClientRequestId() != "" {
		id = derivedSession(c, in)
	}
	if err := s.checkReferences(c, in.input); err != nil {
		return "", err
	}
	bound, err := server.Ask[*workspacev1.DefaultSession](c, workspaceCommand(c, &workspacev1.BindDefaultSession{Owner: o.id, SessionId: id}))
	return bound.GetSessionId(), err
}

// isDeleted reports whether a session that was started or bound has been deleted: not even the platform sees it.
func isDeleted(c *server.Call, sessionID string) bool {
	query := sessionCommand(c, sessionID, &sessionv1.DescribeSession{})
	query.Principal = entity.Platform()
	_, err := server.Ask[*sessionv1.Description](c, query)
	return entity.HasCode(err, entity.NotFound)
}
