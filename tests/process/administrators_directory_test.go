package process

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// A change is the content of an audit row without its time.
type change struct {
	event string
	actor string
	// space is the identity of the workspace, or empty for workspace.created, which is identified by its unique name.
	space string
	// target is a user id, an address or a slug; value is its new value.
	target, value string
}

func (d change) String() string {
	return fmt.Sprintf("%s of %q to %q by %s in %s", d.event, d.target, d.value, d.actor, d.space)
}

type outcome int

const (
	refused outcome = iota
	acknowledged
	// nothing: the response says that there was nothing to change.
	nothing
	// unknown: the connection broke, or the server had an internal error.
	unknown
)

// A request is a requested change with the outcome that its sender knows.
type request struct {
	change
	outcome
	// The request was in flight from began to ended. The first request for the same change began at since. All times are in
	// milliseconds since the Unix epoch.
	began, ended, since int64
	// at is the time of the change in the response; 0: the response has none.
	at int64
}

func (t request) String() string {
	names := map[outcome]string{refused: "refused", acknowledged: "acknowledged", nothing: "nothing to change", unknown: "unknown outcome"}
	return fmt.Sprintf("%s, %s from %d to %d", t.change, names[t.outcome], t.began, t.ended)
}

// slack is the tolerance for the rounding of times, in milliseconds.
const slack = 2

func (t request) during(at int64) bool { return t.began-slack <= at && at <= t.ended+slack }

func now() int64 { return time.Now().UnixMilli() }

// A directory has the slugs of the workspaces, as far as people have seen them. An entry may be outdated, but a slug
// never belongs to another workspace, because it stays reserved for longer than the test runs.
type directory struct {
	t *testing.T

	mu          sync.Mutex
	slugs       map[string]string
	spaces      map[string]string
	old         map[string][]string
	wanted      map[string]bool
	invitations []invited
	contested   int
}

// invited is an invitation that a person may revoke.
type invited struct{ space, id, email string }

func newDirectory(t *testing.T) *directory {
	return &directory{t: t, slugs: map[string]string{}, spaces: map[string]string{}, old: map[string][]string{}, wanted: map[string]bool{}}
}

func (s *directory) put(space, slug string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.spaces[slug]; other != "" && other != space {
		s.t.Errorf("the slug %s belonged to the workspace %s and now belongs to %s", slug, other, space)
	}
	if s.spaces[slug] == "" {
		s.old[space] = append(s.old[space], slug)
	}
	s.slugs[space], s.spaces[slug] = slug, space
}

// again returns a current or former slug of a workspace.
func (s *directory) again(space string, choice int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.old[space][choice%len(s.old[space])]
}

func (s *directory) slug(space string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slugs[space]
}

// want returns a new slug that other people compete for. A few slugs are contested at a time, and later others.
func (s *directory) want(choice int) string {
	const atOnce, each = 10, 6
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contested++
	slug := fmt.Sprintf("corner-%d", s.contested/each+choice%atOnce)
	s.wanted[slug] = true
	return slug
}

// addInvitation records an invitation. The directory has the last hundred.
func (s *directory) addInvitation(i invited) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invitations = append(s.invitations[max(0, len(s.invitations)-100):], i)
}

// invitation returns one of the recorded invitations.
func (s *directory) invitation(choice int) (i invited, some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.invitations) == 0 {
		return i, false
	}
	return s.invitations[choice%len(s.invitations)], true
}
