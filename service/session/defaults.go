package session

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
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

// Owner is the owner of a default session.
type Owner struct {
	// ID is workspace.RootOwner, or the id of an agent.
	ID string
	// Agent is nil for the root.
	Agent *workspacev1.Anchor
}

// boundSession returns the id of the default session of an owner; "" if it has none.
func (r Request) boundSession(ctx context.Context, o Owner) (string, error) {
	found, err := ask[*workspacev1.DefaultSessions](ctx, r, r.toWorkspace(entity.Platform(), &workspacev1.ReadDefaultSessions{}))
	return found.GetSessions()[o.ID], err
}

// DescribeDefault describes the default session of an owner, as the caller. The caller is authorized. It returns nil if there is none that
// the caller sees.
func (r Request) DescribeDefault(ctx context.Context, o Owner) (*sessionv1.Description, error) {
	id, err := r.boundSession(ctx, o)
	if err != nil || id == "" {
		return nil, err
	}
	found, err := r.describe(ctx, id)
	if entity.HasCode(err, entity.NotFound) {
		return nil, nil
	}
	return found, err
}

// SendToDefault sends a message to the default session of an owner, which the first message creates. The caller is authorized. Errors:
// the errors of Send.
func (r Request) SendToDefault(ctx context.Context, o Owner, in Input) (Accepted, error) {
	in.DefaultOwner = o.ID
	if earlier, found, err := r.findSent(ctx, o, in); found || err != nil {
		return earlier, err
	}
	if bound, err := r.DescribeDefault(ctx, o); err != nil {
		return Accepted{}, err
	} else if bound != nil {
		sent, err := r.Send(ctx, bound.GetSession().GetId(), in)
		if !entity.HasCode(err, entity.NotFound) {
			return sent, err
		}
	}
	// There is no session, or it was deleted meanwhile.
	start, err := r.startDefault(ctx, o, in)
	if err != nil {
		return Accepted{}, err
	}
	var sent Accepted
	for range 2 {
		id, err := r.bindDefault(ctx, o, in)
		if err != nil {
			return Accepted{}, err
		}
		if sent, err = r.send(ctx, id, in, start); !entity.HasCode(err, entity.NotFound) || !r.isDeleted(ctx, id) {
			return sent, err
		}
		// The session is being deleted, and the pointer at it is not cleared yet.
		clear := r.toWorkspace(entity.Platform(), &workspacev1.ClearDefaultSession{SessionId: id})
		clear.ID = r.service.NewID("cmd_")
		if _, err := ask[proto.Message](ctx, r, clear); err != nil {
			return Accepted{}, err
		}
	}
	return Accepted{}, errNoSession // the session of an earlier request with the same id was deleted
}

// findSent returns the input that an earlier request with the same id has sent to the default session of an owner, also if another
// session is the default by now. Errors: the errors of findRequest.
func (r Request) findSent(ctx context.Context, o Owner, in Input) (_ Accepted, found bool, err error) {
	requestID := in.GetClientRequestId()
	if requestID == "" {
		return Accepted{}, false, nil
	}
	row, err := r.findRequestRow(ctx, session.OwnerKey(o.ID, session.SenderOf(r.caller.Principal), requestID), requestID)
	if err != nil {
		return Accepted{}, false, err
	}
	sent := row.GetSessionId()
	if row == nil { // the id may have started a session otherwise, which must not become a default
		sent = r.derivedID(in)
	}
	return r.findRequest(ctx, sent, in)
}

// startDefault returns the command that creates the default session of an owner with its first message.
func (r Request) startDefault(ctx context.Context, o Owner, in Input) (start *sessionv1.StartSession, err error) {
	start = &sessionv1.StartSession{Mode: sessionv1.Mode_MODE_AUTO, Tier: in.GetTier(), AgentId: o.Agent.GetAgent().GetId()}
	if start.DefaultTier, err = r.workspaceTier(ctx); err != nil || o.Agent == nil {
		return start, err
	}
	return start, r.startAgent(ctx, start, o.Agent)
}

// bindDefault returns the id of the default session of an owner. If it has none, a new id becomes the default: the same id for a
// repeated request with a request id.
func (r Request) bindDefault(ctx context.Context, o Owner, in Input) (string, error) {
	id, err := r.boundSession(ctx, o)
	if err != nil || id != "" {
		return id, err
	}
	id = r.service.NewID(session.IDPrefix)
	if in.GetClientRequestId() != "" {
		id = r.derivedID(in)
	}
	if err := r.checkReferences(ctx, in); err != nil {
		return "", err
	}
	bind := r.toWorkspace(nil, &workspacev1.BindDefaultSession{Owner: o.ID, SessionId: id})
	bind.ID = r.service.NewID("cmd_")
	bound, err := ask[*workspacev1.DefaultSession](ctx, r, bind)
	return bound.GetSessionId(), err
}

// isDeleted reports whether a session that was started or bound has been deleted: not even the platform sees it.
func (r Request) isDeleted(ctx context.Context, sessionID string) bool {
	query := r.query(sessionID, &sessionv1.DescribeSession{})
	query.Principal = entity.Platform()
	_, err := ask[*sessionv1.Description](ctx, r, query)
	return entity.HasCode(err, entity.NotFound)
}
