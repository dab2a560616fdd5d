package http

import (
	"net/netip"
	"time"

	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
)

// The tables of limits hash with a seed of chance: keys whose hashes collide share a bucket. Where a test is about one
// person's effect on another, a table is chosen in which they do not collide.

// MailsApart resets the limits of mailed invitations so that two senders share nothing of what they may mail to an address. No
// request may be under way.
func (s *Server) SeparateMailLimits(address, one, other string) {
	for {
		m := api.NewMailLimits()
		if !m.Pairs.SharesBucket([2]string{one, address}, [2]string{other, address}) && !m.Senders.SharesBucket(one, other) {
			*s.Links.MailLimits = *m
			return
		}
	}
}

// RemindersApart resets the limits of mail to people who forgot their password, so that two people share no limit.
func (s *Server) SeparateResetLimits(one, other string) {
	people := &s.pages.Resets.Accounts
	for *people = server.NewBuckets[string](); people.SharesBucket(one, other); {
		*people = server.NewBuckets[string]()
	}
}

// Remind waits until the links that were requested so far are mailed.
func (s *Server) WaitForResets() { s.pages.Resets.Wait() }

// Guess counts a failed attempt to sign in.
func (s *Server) CountSignInAttempt(at time.Time, from netip.Addr, email string) {
	s.pages.Attempts.Take(at, from, email, false)
}
