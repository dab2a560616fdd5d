package api

import (
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	sessionservice "github.com/atelier-run/atelier/service/session"
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
func (s sessions) sendToPath(c *server.Call, in *sessionInput) (sessionservice.Accepted, error) {
	id, err := pathSession(c, "sessionId")
	if err != nil {
		return sessionservice.Accepted{}, err
	}
	if err := in.setDigest(c, "to "+id); err != nil {
		return sessionservice.Accepted{}, err
	}
	return s.request(c).Send(c.Context, id, in.content())
}

// deliver waits for a run that takes an input, for DeliveryTime. It returns the session afterwards, and whether the input was
// accepted or is queued. Errors: the errors of Deliver.
func (s sessions) deliver(c *server.Call, sent sessionservice.Accepted) (*sessionv1.Description, string, error) {
	found, isTaken, err := s.request(c).Deliver(c.Context, sent, s.DeliveryTime)
	if isTaken {
		return found, deliveryAccepted, err
	}
	return found, deliveryQueued, err
}
