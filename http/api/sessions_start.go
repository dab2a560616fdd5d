package api

import (
	"bytes"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// startedView is the response to a request that starts a session.
type startedView struct {
	SessionID string                        `json:"sessionId"`
	Session   sessionDetail                 `json:"session"`
	History   server.Collection[historyRow] `json:"history"`
	Delivery  string                        `json:"delivery"`
}

var errRequestReused = entity.Errorf(entity.RequestIDReused, "the clientRequestId was used for another request")

// accepted is an input that is durable.
type accepted struct {
	sessionID string
	seq       uint64
	// created reports that the request has created the session.
	created bool
}

// create starts a session without a parent.
func (s sessions) create(c *server.Call, in *sessionInput) (startedView, bool, error) {
	return s.createBelow(c, "", in)
}

// createChild starts a child of the session in the path.
func (s sessions) createChild(c *server.Call, in *sessionInput) (startedView, bool, error) {
	parent, err := pathSession(c, "parentSessionId")
	if err != nil {
		return startedView{}, false, err
	}
	return s.createBelow(c, parent, in)
}

func (s sessions) createBelow(c *server.Call, parentID string, in *sessionInput) (startedView, bool, error) {
	initial := timelineRequest{descending: true, limit: initialHistoryRows, bytes: initialHistoryBytes}
	if err := c.ReserveAnswer(initial.bytes); err != nil { // a session that has started is not refused
		return startedView{}, false, err
	}
	started, err := s.start(c, parentID, in)
	if err != nil {
		return startedView{}, false, err
	}
	view := startedView{SessionID: started.sessionID}
	found, delivery, err := s.deliver(c, started)
	if err != nil {
		return startedView{}, false, err
	}
	view.Delivery = delivery
	if view.Session, err = viewDetail(c, found); err != nil {
		return startedView{}, false, err
	}
	view.History, err = readHistory(c, started.sessionID, initial)
	return view, started.created, err
}

// The limits of the history in the response to a request that starts a session. Its memory is admitted before the session starts, when the
// size is not known: it is less than that of a page.
const (
	initialHistoryRows  = 50
	initialHistoryBytes = 256 << 10
)

// start creates a session, or finds the one that an earlier request with the same id has created. Errors: not_found if the caller
// does not see the parent, invalid_request, invalid_cwd, request_id_reused, those of the rules.
func (s sessions) start(c *server.Call, parentID string, in *sessionInput) (accepted, error) {
	if err := in.setDigest(c, "below "+parentID); err != nil {
		return accepted{}, err
	}
	id, requestID := c.NewID(session.IDPrefix), in.input.GetClientRequestId()
	if requestID != "" {
		id = derivedSession(c, in)
		if earlier, found, err := findRequest(c, id, in.input); found || err != nil {
			return earlier, err
		}
	}
	if err := c.Authorize(); err != nil {
		return accepted{}, err
	}
	command, err := s.prepareStart(c, parentID, in)
	if err != nil {
		return accepted{}, err
	}
	// The deletion of the parent deletes an admitted child, also if it was not created.
	if parentID != "" {
		_, err := server.Ask[*sessionv1.Description](c, sessionCommand(c, parentID, &sessionv1.AdmitChild{ChildId: id}))
		if err != nil {
			return accepted{}, err
		}
	}
	reply, err := s.accept(c, id, in, sessionCommand(c, id, command))
	if err != nil {
		return accepted{}, err
	}
	return accepted{id, reply.GetInputSeq(), reply.GetCreated()}, nil
}

// derivedSession returns the id of the session that the caller starts with a request that has an id.
func derivedSession(c *server.Call, in *sessionInput) string {
	return session.DerivedID(c.Workspace.ID, session.SenderOf(c.Caller.Principal), in.input.GetClientRequestId())
}

// prepareStart returns the command that starts a session: it validates what the request refers to, and takes from the parent what
// the request omits.
func (s sessions) prepareStart(c *server.Call, parentID string, in *sessionInput) (*sessionv1.StartSession, error) {
	start := &sessionv1.StartSession{
		ParentId: parentID, AgentId: in.agentID, Mode: in.mode, Tier: in.input.GetTier(), Prompt: in.input,
		Audience: &sessionv1.Audience{Specific: in.isSpecific, UserIds: in.members},
	}
	var parent *sessionv1.Description
	if parentID != "" {
		var err error
		if parent, err = describeSession(c, parentID); err != nil {
			return nil, err
		}
	}
	w, err := describePathWorkspace(c)
	if err != nil {
		return nil, err
	}
	start.DefaultTier = effectiveTier(w)
	if in.agentID != "" {
		found, err := findAgent(c, in.agentID)
		if entity.HasCode(err, entity.NotFound) {
			return nil, errNoAgent
		} else if err != nil {
			return nil, err
		}
		if found, err = refreshAgent(c, s.skills, found); err != nil {
			return nil, err
		}
		startAgent(start, found)
	}
	if parentID != "" {
		inherit(start, parent.GetSession())
	}
	if in.hasCwd {
		if start.Cwd, err = s.resolveCwd(c.Context, c.Workspace.ID, in.cwd); err != nil {
			return nil, err
		}
	}
	if start.Mode == sessionv1.Mode_MODE_UNSPECIFIED {
		start.Mode = sessionv1.Mode_MODE_AUTO
	}
	if err := checkAreMembers(c, "memberUserIds", in.members); err != nil {
		return nil, err
	}
	return start, s.checkReferences(c, in.input)
}

// startAgent sets the values that a session takes from its agent: the folder and the tier.
func startAgent(start *sessionv1.StartSession, agent *workspacev1.Anchor) {
	start.Cwd = agent.GetPath()
	if tier := agent.GetAgent().GetTier(); tier != workspacev1.Tier_TIER_UNSPECIFIED {
		start.DefaultTier = tier
	}
}

// inherit sets the values that a child takes from its parent if the request omits them: the working directory, the sticky tier and
// the mode.
func inherit(start *sessionv1.StartSession, parent *sessionv1.Session) {
	start.Cwd = parent.GetCwd()
	if start.GetTier() == workspacev1.Tier_TIER_UNSPECIFIED {
		start.Tier = parent.GetTier()
	}
	if start.GetMode() == sessionv1.Mode_MODE_UNSPECIFIED {
		start.Mode = parent.GetMode()
	}
}

// findRequest returns the input that an earlier request with the same id has sent to a session. Errors: request_id_reused if that
// was another request, not_found if the caller does not see the session.
func findRequest(c *server.Call, sessionID string, in *sessionv1.Input) (_ accepted, found bool, err error) {
	row, err := findRequestRow(c, session.Key(sessionID, in.GetClientRequestId()), in.GetClientRequestId())
	if err != nil || row == nil {
		return accepted{}, false, err
	}
	if err := c.Authorize(); err != nil {
		return accepted{}, true, err
	}
	if _, err := describeSession(c, sessionID); err != nil {
		return accepted{}, true, err
	}
	if !bytes.Equal(row.GetDigest(), in.GetDigest()) {
		return accepted{}, true, errRequestReused
	}
	return accepted{sessionID: sessionID, seq: row.GetInputSeq()}, true, nil
}

// findRequestRow returns the row with a key that ends with a request id, or nil. Tools of agents have request ids that begin with another
// one, whose rows a query for that finds, too.
func findRequestRow(c *server.Call, key, requestID string) (*sessionv1.RequestRow, error) {
	var row sessionv1.RequestRow
	if found, err := findSessionRow(c, session.RequestList, key, &row); err != nil || !found || row.GetClientRequestId() != requestID {
		return nil, err
	}
	return &row, nil
}
