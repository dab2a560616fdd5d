package http

import (
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// guesses limits tries to sign in. The strict limit is on an address of the network with one of a person, so that who
// guesses keeps nobody out but themselves; the wide ones slow down who guesses from many networks, or about many people.
// From many networks somebody could use a person's up, and keep them out: it does not count for a browser that the person
// signed in with before.
// The memory is fixed, however many of either there are: those whose hashes meet share a bucket.
type guesses struct {
	seed                   maphash.Seed
	pairs, people, sources [1 << 13]bucket
}

// guesser is who guesses about whom.
type guesser struct {
	from  netip.Prefix
	email string
}

// allowance is how many tries may come at once, and in what time one more.
type allowance struct {
	burst int
	each  time.Duration
}

var (
	perPair   = allowance{10, 10 * time.Second}
	perPerson = allowance{300, 500 * time.Millisecond}
	perSource = allowance{100, time.Second}
)

func newGuesses() *guesses { return &guesses{seed: maphash.MakeSeed()} }

// try counts a try, or refuses it; known tells that it comes from a browser of that person. What the strict limit refuses
// costs the wide ones nothing.
func (g *guesses) try(now time.Time, source netip.Addr, email string, known bool) error {
	from := network(source)
	for _, limit := range []struct {
		bucket *bucket
		allowance
	}{
		{slot(g.seed, &g.pairs, guesser{from, email}), perPair},
		{slot(g.seed, &g.sources, from), perSource},
		{slot(g.seed, &g.people, email), perPerson},
	} {
		if known && limit.allowance == perPerson {
			continue
		}
		if wait := limit.bucket.takeEach(now, limit.each, limit.burst); wait > 0 {
			return &entity.Error{Code: entity.RateLimited, Message: "there were too many tries to sign in", RetryAfter: wait}
		}
	}
	return nil
}

func slot[Of comparable](seed maphash.Seed, buckets *[1 << 13]bucket, of Of) *bucket {
	return &buckets[maphash.Comparable(seed, of)%uint64(len(buckets))]
}
