package api

import (
	"github.com/atelier-run/atelier/http/server"
	sessionservice "github.com/atelier-run/atelier/service/session"
)

// startedView is the response to a request that starts a session.
type startedView struct {
	SessionID string                        `json:"sessionId"`
	Session   sessionDetail                 `json:"session"`
	History   server.Collection[historyRow] `json:"history"`
	Delivery  string                        `json:"delivery"`
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
	view := startedView{SessionID: started.SessionID}
	found, delivery, err := s.deliver(c, started)
	if err != nil {
		return startedView{}, false, err
	}
	view.Delivery = delivery
	if view.Session, err = viewDetail(c, found); err != nil {
		return startedView{}, false, err
	}
	view.History, err = readHistory(c, started.SessionID, initial)
	return view, started.Created, err
}

// The limits of the history in the response to a request that starts a session. Its memory is admitted before the session starts, when the
// size is not known: it is less than the memory of a page.
const (
	initialHistoryRows  = 50
	initialHistoryBytes = 256 << 10
)

// start starts a session, below a parent unless parentID is empty.
func (s sessions) start(c *server.Call, parentID string, in *sessionInput) (sessionservice.Accepted, error) {
	if err := in.setDigest(c, "below "+parentID); err != nil {
		return sessionservice.Accepted{}, err
	}
	return s.request(c).Start(c.Context, in.start(parentID))
}
