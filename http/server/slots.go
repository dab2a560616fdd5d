package server

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

// A holder takes slots: the network of a client until its request is authenticated, and then the person of the credential.
type holder struct {
	network netip.Prefix
	person  string
}

// holderOf returns the holder for the requests with a credential: its person, or a computer, which has none.
func holderOf(c *Credential) holder {
	return holder{person: cmp.Or(c.Principal.GetUserId(), c.Principal.GetCredentialId())}
}

// siteOf returns the group of a holder: the larger network of an IPv6 network.
func siteOf(h holder) (site holder, has bool) {
	site.network, has = limit.Site(h.network)
	return site, has
}

const (
	// publicShare: one in publicShare requests in flight may be on a public operation. Such a request can last long, because its
	// body arrives slowly or it waits in a queue; without this limit, clients without a credential could take all the room.
	publicShare = 4
	// probeSlots and operatorSlots are the slots of probes and of the operators' listener, which no other request can take.
	probeSlots    = 64
	operatorSlots = 256
)

// slots are the slots of requests and streams, by purpose.
type slots struct {
	// requests has the slots of all requests but streams. public has the slots of requests that need no
	// credential; such a request takes a slot of both.
	requests, public, probes, operators, streams *limit.Shares[holder]
	// bodies has a slot for each byte of Limits.BodyMemory.
	bodies *limit.Shares[holder]
}

func newSlots(l Limits, r prometheus.Registerer) (slots, error) {
	s := slots{
		requests: limit.NewGroupedShares(l.Requests, siteOf), public: limit.NewGroupedShares(max(1, l.Requests/publicShare), siteOf),
		probes: limit.NewGroupedShares(probeSlots, siteOf), operators: limit.NewShares[holder](operatorSlots),
		streams: limit.NewShares[holder](l.Streams), bodies: limit.NewGroupedShares(l.BodyMemory, siteOf),
	}
	return s, errors.Join(s.requests.Register(r, "requests"), s.public.Register(r, "public_requests"), s.probes.Register(r, "probes"),
		s.operators.Register(r, "operators"), s.streams.Register(r, "streams"), s.bodies.Register(r, "body_bytes"))
}

// of returns the slots that a request takes; nil: none, because the watcher admits it as a stream. A stream takes,
// if its request has a body, the slot of a request until the watcher admits it.
func (s slots) of(op *operation, r *http.Request) *limit.Shares[holder] {
	switch {
	case op.Scope == ScopeProbe:
		return s.probes
	case op.Scope == ScopeOperator:
		return s.operators
	case op.Timing == Streaming && r.ContentLength == 0:
		return nil
	default:
		return s.requests
	}
}

// requestSlots are the slots of one request.
type requestSlots struct {
	shares, public  *limit.Shares[holder]
	holder, network holder
}

// takeSlots takes the slots of a request for the client's network. release must be called in any case. Errors: unavailable,
// rate_limited.
func (s *Server) takeSlots(op *operation, r *http.Request) (taken requestSlots, err error) {
	shares := s.slots.of(op, r)
	if shares == nil && op.Scope != ScopePublic {
		return taken, nil
	}
	h := holder{network: limit.Network(clientAddress(r, s.options.TrustedProxies))}
	taken.network, taken.holder = h, h
	if shares != nil {
		if err := shares.Acquire(h); err != nil {
			return taken, refusedSlot(err, h, tooManyRequests)
		}
		taken.shares = shares
	}
	if op.Scope == ScopePublic {
		if err := s.slots.public.Acquire(h); err != nil {
			return taken, refusedSlot(err, h, tooManyRequests)
		}
		taken.public = s.slots.public
	}
	return taken, nil
}

// pass passes the slot of a request on to the person of its credential. A request of a public operation stays with the network: its
// credential may be any. Errors: rate_limited.
func (t *requestSlots) pass(c *Credential) error {
	if t == nil || t.shares == nil || t.public != nil {
		return nil
	}
	to := holderOf(c)
	if err := t.shares.Move(t.holder, to); err != nil {
		return refusedSlot(err, to, tooManyRequests)
	}
	t.holder = to
	return nil
}

// release frees the slots, once.
func (t *requestSlots) release() {
	if t.shares != nil {
		t.shares.Release(t.holder)
	}
	if t.public != nil {
		t.public.Release(t.network)
	}
	t.shares, t.public = nil, nil
}

// tooManyRequests is the message for the slots of requests. %s names the holder that has its share.
const tooManyRequests = "too many requests %s are in progress at the same time"

// refusedSlot returns the error for a slot that a holder was refused.
func refusedSlot(err error, h holder, message string) error {
	if errors.Is(err, limit.ErrShare) {
		whose := "of this person"
		if h.person == "" {
			whose = "from this address"
		}
		return &entity.Error{Code: entity.RateLimited, Message: fmt.Sprintf(message, whose), RetryAfter: time.Second}
	}
	return ErrOverloaded
}
