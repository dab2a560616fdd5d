package session

import (
	"bytes"
	"context"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

var (
	errNoSession     = entity.Errorf(entity.NotFound, "no such session")
	errRequestReused = entity.Errorf(entity.RequestIDReused, "the request id was used for another request")
)

// Send sends a message, a note or an answer to a session, or finds it if an earlier request with the same id has sent it. Errors: not_found
// if the caller does not see the session, forbidden, invalid_request, no_pending_question, limit_reached, request_id_reused,
// insufficient_storage, the errors of the rules.
func (r Request) Send(ctx context.Context, sessionID string, in Input) (Accepted, error) {
	return r.send(ctx, sessionID, in, nil)
}

// send is Send. With start, it starts the session if the session does not exist.
func (r Request) send(ctx context.Context, id string, in Input, start *sessionv1.StartSession) (Accepted, error) {
	if err := r.authorize(ctx); err != nil {
		return Accepted{}, err
	}
	if !session.IsID(id) { // activate no entity for a text that is no id
		return Accepted{}, errNoSession
	}
	if earlier, found, err := r.findRequest(ctx, id, in); found || err != nil {
		return earlier, err
	}
	described, err := r.describe(ctx, id)
	if err != nil && (start == nil || !entity.HasCode(err, entity.NotFound)) {
		return Accepted{}, err
	}
	if err := r.checkReferences(ctx, in); err != nil {
		return Accepted{}, err
	}
	send := &sessionv1.SendInput{Input: in.Input, Start: start, DefaultTier: start.GetDefaultTier()}
	if send.DefaultTier == workspacev1.Tier_TIER_UNSPECIFIED {
		if send.DefaultTier, err = r.sessionTier(ctx, described.GetSession()); err != nil {
			return Accepted{}, err
		}
	}
	command := r.command(id, send)
	if in.GetClientRequestId() != "" {
		command.ID = "req_" + in.GetClientRequestId()
	}
	return r.accept(ctx, id, in, command)
}

// accept sends the command that makes an input of a session durable, after its images are durable. Errors: request_id_reused if an
// earlier input with the same request id has other content, the errors of Images.KeepImages and of the rules.
func (r Request) accept(ctx context.Context, id string, in Input, command entity.Command) (Accepted, error) {
	var reply *sessionv1.Accepted
	commit := func() (err error) {
		reply, err = ask[*sessionv1.Accepted](ctx, r, command)
		if err == nil && in.GetClientRequestId() != "" && !bytes.Equal(reply.GetDigest(), in.GetDigest()) {
			err = errRequestReused
		}
		return err
	}
	var err error
	if len(in.Images) == 0 {
		err = commit()
	} else {
		err = r.service.Images.KeepImages(ctx, r.workspaceID, id, in.Images, commit)
	}
	if err != nil {
		return Accepted{}, err
	}
	return Accepted{id, reply.GetInputSeq(), reply.GetCreated()}, nil
}

// findRequest returns the input that an earlier request with the same id has sent to a session; it finds none for a request without an
// id. The caller is authorized. Errors: request_id_reused if the earlier request was different, not_found if the caller does not see
// the session.
func (r Request) findRequest(ctx context.Context, sessionID string, in Input) (_ Accepted, found bool, err error) {
	requestID := in.GetClientRequestId()
	if requestID == "" {
		return Accepted{}, false, nil
	}
	row, err := r.findRequestRow(ctx, session.Key(sessionID, requestID), requestID)
	if err != nil || row == nil {
		return Accepted{}, false, err
	}
	if _, err := r.describe(ctx, sessionID); err != nil {
		return Accepted{}, true, err
	}
	if !bytes.Equal(row.GetDigest(), in.GetDigest()) {
		return Accepted{}, true, errRequestReused
	}
	return Accepted{SessionID: sessionID, Seq: row.GetInputSeq()}, true, nil
}

// findRequestRow returns the row with a key that ends with a request id, or nil. A longer request id can begin with the request id. The
// query finds the row of the longer request id only if there is no row of the request id, because the key with the request id is shorter.
func (r Request) findRequestRow(ctx context.Context, key, requestID string) (*sessionv1.RequestRow, error) {
	var row sessionv1.RequestRow
	if found, err := r.findRow(ctx, session.RequestList, key, &row); err != nil || !found || row.GetClientRequestId() != requestID {
		return nil, err
	}
	return &row, nil
}

// MoveCwd moves the working directory of a session, and returns the session. It compares the directory that the session had when the
// request began. Errors: not_found, forbidden, invalid_cwd with a reason, cwd_conflict if another request has moved it meanwhile.
func (r Request) MoveCwd(ctx context.Context, sessionID, cwd string) (*sessionv1.Description, error) {
	if err := r.authorize(ctx); err != nil {
		return nil, err
	}
	before, err := r.describe(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	real, err := r.service.ResolveCwd(ctx, r.workspaceID, cwd)
	if err != nil {
		return nil, err
	}
	return ask[*sessionv1.Description](ctx, r, r.command(sessionID, &sessionv1.MoveCwd{Cwd: real, Expected: before.GetSession().GetCwd()}))
}
