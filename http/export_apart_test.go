package http

import "net/netip"

// The tables of limits have a fixed number of buckets and a seed that chance chose: those whose hashes meet share one. Where
// a test is about who keeps whom out, a table is chosen in which they do not meet.

// Try is somebody's to sign in.
type Try struct {
	From  netip.Addr
	Email string
}

// NewGuessesApart are guesses in which no two of these share what they would not with every seed.
func NewGuessesApart(tries ...Try) Guesses {
	for {
		if g := newGuesses(); g.apart(tries) {
			return Guesses{g}
		}
	}
}

func (g *guesses) apart(tries []Try) bool {
	for i, a := range tries {
		for _, b := range tries[:i] {
			one, other := guesser{network(a.From), a.Email}, guesser{network(b.From), b.Email}
			switch {
			case one != other && slot(g.seed, &g.pairs, one) == slot(g.seed, &g.pairs, other),
				one.from != other.from && slot(g.seed, &g.sources, one.from) == slot(g.seed, &g.sources, other.from),
				one.email != other.email && slot(g.seed, &g.people, one.email) == slot(g.seed, &g.people, other.email):
				return false
			}
		}
	}
	return true
}

// MailsApart begins anew with what was mailed, so that these two share nothing of what they may mail to an address. No
// request may be under way.
func (s *Server) MailsApart(address, one, other string) {
	for {
		m := newMails()
		if slot(m.seed, &m.pairs, [2]string{one, address}) != slot(m.seed, &m.pairs, [2]string{other, address}) &&
			slot(m.seed, &m.senders, one) != slot(m.seed, &m.senders, other) {
			s.mails = m
			return
		}
	}
}
