package http

import (
	"hash/maphash"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// mails limits what people can have mailed to others: an invitation that is renewed is sent again. As with guesses, the
// strict limit is on one person's mail to one address, so that nobody keeps others from writing there; the memory is fixed.
type mails struct {
	seed                      maphash.Seed
	pairs, addresses, senders [1 << 13]bucket
}

var (
	perCorrespondence = allowance{5, 10 * time.Minute}
	perAddress        = allowance{50, time.Minute}
	perSender         = allowance{1000, 10 * time.Second}
)

func newMails() *mails { return &mails{seed: maphash.MakeSeed()} }

// take counts a message of somebody to an address, or refuses it. Errors: rate_limited.
func (m *mails) take(now time.Time, sender, address string) error {
	for _, limit := range []struct {
		bucket *bucket
		allowance
	}{
		{slot(m.seed, &m.pairs, [2]string{sender, address}), perCorrespondence},
		{slot(m.seed, &m.senders, sender), perSender},
		{slot(m.seed, &m.addresses, address), perAddress},
	} {
		if wait := limit.bucket.takeEach(now, limit.each, limit.burst); wait > 0 {
			return &entity.Error{Code: entity.RateLimited, Message: "too many invitations were mailed", RetryAfter: wait}
		}
	}
	return nil
}
