package api

import (
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// sentView is the response to a message, a note or an answer.
type sentView struct {
	OK       bool   `json:"ok"`
	Delivery string `json:"delivery"`
	// SessionID is set for a default session.
	SessionID string `json:"sessionId,omitzero"`
}

// The values of delivery: a run has taken the input, or it waits.
const (
	deliveryAccepted = "accepted"
	deliveryQueued   = "queued"
)

// sendAndDeliver sends an input to the session in the path.
func (s sessions) sendAndDeliver(c *server.Call, in *sessionInput) (sentView, error) {
	sent, err := s.sendToPath(c, in)
	if err != nil {
		return sentView{}, err
	}
	_, delivery, err := s.deliver(c, sent)
	return sentView{OK: true, Delivery: delivery}, err
}

// sendToPath sends an input to the session in the path, or finds it if an earlier request with the same id has sent it.
func (s sessions) sendToPath(c *server.Call, in *sessionInput) (accepted, error) {
	id, err := pathSession(c, "sessionId")
	if err != nil {
		return accepted{}, err
	}
	if err := in.setDigest(c, "to "+id); err != nil {
		return accepted{}, err
	}
	return s.send(c, id, in, nil)
}

// send sends an input to a session. With start, it starts the session if it does not exist. Errors: not_found if the caller does
// not see the session, invalid_request, no_pending_question, request_id_reused, those of the rules.
func (s sessions) send(c *server.Call, id string, in *sessionInput, start *sessionv1.StartSession) (accepted, error) {
	requestID := in.input.GetClientRequestId()
	if requestID != "" {
		if earlier, found, err := findRequest(c, id, in.input); found || err != nil {
			return earlier, err
		}
	}
	if err := c.Authorize(); err != nil {
		return accepted{}, err
	}
	d, err := describeSession(c, id)
	if err != nil && (start == nil || !entity.HasCode(err, entity.NotFound)) {
		return accepted{}, err
	}
	if err := s.checkReferences(c, in.input); err != nil {
		return accepted{}, err
	}
	command := &sessionv1.SendInput{Input: in.input, Start: start, DefaultTier: start.GetDefaultTier()}
	if command.DefaultTier == workspacev1.Tier_TIER_UNSPECIFIED {
		if command.DefaultTier, err = tierOfSession(c, d.GetSession()); err != nil {
			return accepted{}, err
		}
	}
	message := sessionCommand(c, id, command)
	if requestID != "" {
		message.ID = "req_" + requestID
	}
	reply, err := s.accept(c, id, in, message)
	if err != nil {
		return accepted{}, err
	}
	return accepted{id, reply.GetInputSeq(), reply.GetCreated()}, nil
}

// tierOfSession returns the tier of a session's turns without an explicit or a sticky one: that of its agent, or of the workspace.
func tierOfSession(c *server.Call, s *sessionv1.Session) (workspacev1.Tier, error) {
	if s.GetAgentId() != "" {
		agent, err := findAgent(c, s.GetAgentId())
		switch {
		case err != nil && !entity.HasCode(err, entity.NotFound):
			return 0, err
		case agent.GetAgent().GetTier() != workspacev1.Tier_TIER_UNSPECIFIED:
			return agent.GetAgent().GetTier(), nil
		}
	}
	w, err := describePathWorkspace(c)
	return effectiveTier(w), err
}

// deliver waits for a run that takes an input, for DeliveryTime. It returns the session afterwards, and whether the input was
// accepted or is queued. A note is queued until a turn takes it, and nothing waits for it. Errors: not_found if the session was
// deleted meanwhile.
func (s sessions) deliver(c *server.Call, sent accepted) (*sessionv1.Description, string, error) {
	found, err := describeSession(c, sent.sessionID)
	if err != nil || !isUntaken(found.GetSession(), sent.seq) {
		return found, deliveryAccepted, err
	}
	if p := session.PendingInput(found.GetSession(), sent.seq); p.GetKind() == sessionv1.InputKind_INPUT_KIND_NOTE {
		return found, deliveryQueued, nil
	}
	later, err := await(c.Context, c, s.DeliveryTime, sent.sessionID, &sessionv1.AwaitInput{Seq: sent.seq, Taken: true})
	switch {
	case err != nil && !entity.HasCode(err, entity.Unavailable):
		return nil, "", err
	case later == nil: // also if the server cannot hold the query: the input is durable
		return found, deliveryQueued, nil
	}
	return later, deliveryAccepted, nil
}

// isUntaken reports whether no run has taken an input yet.
func isUntaken(s *sessionv1.Session, seq uint64) bool {
	return session.PendingInput(s, seq) != nil || slices.Contains(s.GetTurn().GetInputs(), seq) && s.GetTurn().GetRunId() == ""
}
