package process

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// deed is a change as its audit row tells it.
type deed struct {
	event string
	actor string
	// space is an identity; empty for the event workspace.created, whose name is nobody else's.
	space string
	// target is a user id, an address or a slug; value what became of it.
	target, value string
}

func (d deed) String() string {
	return fmt.Sprintf("%s of %q to %q by %s in %s", d.event, d.target, d.value, d.actor, d.space)
}

type outcome int

const (
	refused outcome = iota
	acknowledged
	// nothing: the answer says that there was nothing to change.
	nothing
	// unknown: the connection ended, or something failed inside.
	unknown
)

// told is what somebody asked for, and what came of it as far as they know.
type told struct {
	deed
	outcome
	// The request was under way from began to ended, in milliseconds. An earlier one for the same began at since.
	began, ended, since int64
	// at is when the answer says that it happened; 0: it does not.
	at int64
}

func (t told) String() string {
	what := map[outcome]string{refused: "refused", acknowledged: "acknowledged", nothing: "nothing to do", unknown: "cut off"}
	return fmt.Sprintf("%s, %s from %d to %d", t.deed, what[t.outcome], t.began, t.ended)
}

// slack is how far clocks' roundings may lie apart, in milliseconds.
const slack = 2

func (t told) during(at int64) bool { return t.began-slack <= at && at <= t.ended+slack }

func now() int64 { return time.Now().UnixMilli() }

// signs are where people look up under which slug a space is found. What they say may be old, but a slug is never
// another space's: it stays reserved for longer than the test runs.
type signs struct {
	t *testing.T

	mu          sync.Mutex
	slugs       map[string]string
	spaces      map[string]string
	old         map[string][]string
	wanted      map[string]bool
	invitations []invited
	contested   int
}

// invited is an invitation that somebody may revoke.
type invited struct{ space, id, email string }

func newSigns(t *testing.T) *signs {
	return &signs{t: t, slugs: map[string]string{}, spaces: map[string]string{}, old: map[string][]string{}, wanted: map[string]bool{}}
}

func (s *signs) put(space, slug string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.spaces[slug]; other != "" && other != space {
		s.t.Errorf("the slug %s was the space %s's and is now %s's", slug, other, space)
	}
	if s.spaces[slug] == "" {
		s.old[space] = append(s.old[space], slug)
	}
	s.slugs[space], s.spaces[slug] = slug, space
}

// again gives a slug that a space has, or had.
func (s *signs) again(space string, choice int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.old[space][choice%len(s.old[space])]
}

func (s *signs) slug(space string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slugs[space]
}

// want gives a slug that others want as well: a few are contested at a time, and after them further ones.
func (s *signs) want(choice int) string {
	const atOnce, each = 10, 6
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contested++
	slug := fmt.Sprintf("corner-%d", s.contested/each+choice%atOnce)
	s.wanted[slug] = true
	return slug
}

// keep remembers the last invitations, take gives one of them.
func (s *signs) keep(i invited) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invitations = append(s.invitations[max(0, len(s.invitations)-100):], i)
}

func (s *signs) take(choice int) (i invited, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.invitations) == 0 {
		return i, false
	}
	return s.invitations[choice%len(s.invitations)], true
}
