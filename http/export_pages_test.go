package http

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// Guesses are tries to sign in.
type Guesses struct{ g *guesses }

func NewGuesses() Guesses { return Guesses{newGuesses()} }

// Wait tries now, and tells how long to wait.
func (g Guesses) Wait(from netip.Addr, email string) time.Duration {
	var refused *entity.Error
	if errors.As(g.g.try(time.Now(), from, email, false), &refused) {
		return refused.RetryAfter
	}
	return 0
}

// Guess is a try to sign in from somewhere.
func (s *Server) Guess(from netip.Addr, email string, at time.Time) {
	s.guesses.try(at, from, email, false)
}

// Passwords makes and checks hashes.
type Passwords struct{ p *passwords }

func NewPasswords() Passwords { return Passwords{newPasswords()} }

func (p Passwords) Hash(ctx context.Context, password string) (string, error) {
	return p.p.hash(ctx, password)
}

func (p Passwords) Matches(ctx context.Context, hash, password string) (bool, error) {
	return p.p.matches(ctx, hash, password)
}

// Occupy takes every turn until free.
func (p Passwords) Occupy() (free func()) {
	n := cap(p.p.turns)
	for range n {
		p.p.turns <- struct{}{}
	}
	return func() {
		for range n {
			<-p.p.turns
		}
	}
}

// Turns is how many passwords are worked on at a time, and Queue how many wait for that.
func (p Passwords) Turns() int { return cap(p.p.turns) }
func (p Passwords) Queue() int { return hasherQueue * cap(p.p.turns) }

// ClientAddress is whose a request is.
var ClientAddress = clientAddress

// LocalPath is where signing in leads that is asked to lead to text.
var LocalPath = localPath

// Remind waits until the links that were asked for are mailed.
func (s *Server) Remind() { s.forgotten.work.Wait() }

// RemindersApart begins anew with who forgot their password, so that these two people share no limit of mail.
func (s *Server) RemindersApart(one, other string) {
	for {
		f := newForgotten(s.options.Secret)
		if slot(f.seed, &f.people, one) != slot(f.seed, &f.people, other) {
			s.forgotten = f
			return
		}
	}
}
