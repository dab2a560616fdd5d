package http

import (
	"net/netip"
	"time"

	"github.com/atelier-run/atelier/limit"
	"github.com/atelier-run/atelier/service/invitation"
)

// SeparateMailLimits resets the limits of mailed invitations, so that two senders share no bucket. It must be called without
// requests in flight. The tables hash with a random seed, and keys with colliding hashes share a bucket.
func (s *Server) SeparateMailLimits(address, one, other string) {
	for {
		m := invitation.NewMailLimits()
		if m.Pairs.Bucket([2]string{one, address}) != m.Pairs.Bucket([2]string{other, address}) && m.Senders.Bucket(one) != m.Senders.Bucket(other) {
			*s.Invitations.Limits = *m
			return
		}
	}
}

// SeparateResetLimits resets the limits of password resets, so that two accounts share no bucket.
func (s *Server) SeparateResetLimits(one, other string) {
	people := &s.pages.Resets.Accounts
	for *people = limit.NewBuckets[string](); people.Bucket(one) == people.Bucket(other); {
		*people = limit.NewBuckets[string]()
	}
}

// WaitForResets waits until the requested password resets are processed.
func (s *Server) WaitForResets() { s.pages.Resets.Wait() }

// CountSignInAttempt counts an attempt to sign in.
func (s *Server) CountSignInAttempt(at time.Time, from netip.Addr, email string) {
	s.pages.Attempts.Take(at, from, email, false)
}
