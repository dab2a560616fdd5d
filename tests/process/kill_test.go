package process

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

var (
	seed  = flag.Uint64("seed", 0, "seed of the kill test; 0: one from the clock")
	kills = flag.Int("kills", 8, "how often the kill test kills the node")
)

// TestKill lets people work on one drive while the node is killed again and again, and then holds what is left against
// what was acknowledged.
func TestKill(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-seed=%d", *seed)
	r := rand.New(rand.NewPCG(*seed, 0))
	s := newSite(t, filepath.Join(t.TempDir(), "data"))
	work, rest := context.WithCancel(t.Context())
	defer rest()
	crew := hire(t, s, r)
	var working, following sync.WaitGroup
	for _, w := range crew.writers {
		working.Go(func() { w.work(work) })
	}
	working.Go(func() { crew.clerk.work(work) })
	for _, f := range crew.followers {
		following.Go(func() { f.work(t.Context()) })
	}
	for range *kills {
		s.worked(t, 20+r.IntN(300))
		instant := time.NewTimer(time.Duration(r.IntN(int(300 * time.Millisecond))))
		<-instant.C
		s.restart(t)
	}
	rest()
	working.Wait()
	s.restart(t)
	judge(t, s, crew)
	for _, f := range crew.followers {
		f.stop()
	}
	following.Wait()
}

// site is a directory and the node that runs over it now.
type site struct {
	dir string
	key string // of the person who owns the workspace

	mu    sync.Mutex
	node  *node
	life  int
	begun chan struct{} // closed when the next life begins

	acknowledged chan struct{}
}

func newSite(t *testing.T, dir string) *site {
	t.Helper()
	s := &site{dir: dir, node: start(t, dir, killSettings...), begun: make(chan struct{}), acknowledged: make(chan struct{}, 1024)}
	_, s.key = newPerson(t, s.node, "ada@example.org")
	newSpace(t, newClient(s.node.address, s.key))
	return s
}

// Small tables and entities that soon leave memory bring compactions and activations into the short life of a test.
var killSettings = []string{"--rate=0", "--address-rate=0", "--cache-size=4MiB", "--idle-after=1s", "--log-level=info"}

// current is the node's address, and which of its lives this is.
func (s *site) current() (address string, life int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.address, s.life
}

// again waits for a later life than one in which something went wrong, or for a moment: the node may live and have been
// busy. It tells whether there is time left.
func (s *site) again(ctx context.Context, life int) bool {
	moment, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s.after(moment, life)
	return ctx.Err() == nil
}

// after waits for a later life than one that a caller has seen end. It tells whether there is one before the context
// ends.
func (s *site) after(ctx context.Context, life int) bool {
	s.mu.Lock()
	begun := s.begun
	later := s.life > life
	s.mu.Unlock()
	if later {
		return true
	}
	select {
	case <-begun:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *site) restart(t *testing.T) {
	t.Helper()
	s.node.kill()
	next := start(t, s.dir, killSettings...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = next
	s.life++
	close(s.begun)
	s.begun = make(chan struct{})
}

// acknowledge counts an operation towards the next kill.
func (s *site) acknowledge() {
	select {
	case s.acknowledged <- struct{}{}:
	default:
	}
}

// worked waits until so many operations were acknowledged, for as long as there are any.
func (s *site) worked(t *testing.T, operations int) {
	t.Helper()
	for range operations {
		select {
		case <-s.acknowledged:
		case <-time.After(patience):
			t.Fatalf("the node does no work:\n%s", s.node.logs)
		}
	}
}

// crew are those who work on the site.
type crew struct {
	writers   []*writer
	followers []*follower
	clerk     *clerk
}

const (
	writersAtWork = 6
	keysAtWork    = 3
)

// hire gives writers keys of several people's: two of them share each.
func hire(t *testing.T, s *site, r *rand.Rand) crew {
	t.Helper()
	c := crew{clerk: newClerk(s, rand.New(rand.NewPCG(*seed, 1)))}
	owner := newClient(s.node.address, s.key)
	defer owner.close()
	var keys []issuedKey
	for i := range keysAtWork {
		var key issuedKey
		if status, err := owner.postJSON(t.Context(), "/v1/user/api-keys", map[string]string{"name": fmt.Sprint("writer ", i)}, &key); err != nil {
			t.Fatalf("issuing a key: %d %v", status, err)
		}
		keys = append(keys, key)
	}
	owner.expect(t, 201, "MKCOL", drivePath("shared"), "")
	for i := range writersAtWork {
		w := newWriter(t, s, i, keys[i%keysAtWork], rand.New(rand.NewPCG(r.Uint64(), uint64(i))))
		owner.expect(t, 201, "MKCOL", drivePath(w.folder), "")
		c.writers = append(c.writers, w)
	}
	c.followers = append(c.followers, newFollower(s, streaming), newFollower(s, streaming), newFollower(s, paging))
	return c
}

type issuedKey struct {
	Key    string
	Record struct{ ID string }
}

func (k issuedKey) actor() string { return "api-key:" + k.Record.ID }
