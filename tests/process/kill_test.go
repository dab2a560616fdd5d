package process

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

var (
	seed  = flag.Uint64("seed", 1, "seed of the random choices of tests with kills")
	kills = flag.Int("kills", 6, "number of times that the kill test kills the node")
)

// TestKill kills the node repeatedly while clients work on one drive. It then compares drive, sequence and streams with the
// acknowledged operations.
func TestKill(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	r := rand.New(rand.NewPCG(*seed, 0))
	s := newSite(t, filepath.Join(t.TempDir(), "data"))
	work, stop := context.WithCancel(t.Context())
	defer stop()
	workers := newWorkers(t, s, r)
	var working, following sync.WaitGroup
	for _, w := range workers.writers {
		working.Go(func() { w.work(work) })
	}
	working.Go(func() { workers.account.work(work) })
	for _, f := range workers.followers {
		following.Go(func() { f.work(t.Context()) })
	}
	for range *kills {
		s.waitForOperations(t, 20+r.IntN(300))
		delay := time.NewTimer(time.Duration(r.IntN(int(300 * time.Millisecond))))
		<-delay.C
		s.restart(t)
	}
	stop()
	working.Wait()
	s.restart(t)
	verify(t, s, workers)
	for _, f := range workers.followers {
		f.stop()
	}
	following.Wait()
}

// A site is a data directory and the node that currently runs with it.
type site struct {
	dir string
	key string // of the owner of the workspace
	// more has the settings of the node besides killSettings.
	more []string

	mu         sync.Mutex
	node       *node
	generation int
	restarted  chan struct{} // closed when the next node has started

	acknowledged chan struct{}
}

// newSite starts a node with killSettings and more settings.
func newSite(t *testing.T, dir string, more ...string) *site {
	t.Helper()
	s := &site{dir: dir, more: more, node: start(t, dir, slices.Concat(killSettings, more)...), restarted: make(chan struct{}), acknowledged: make(chan struct{}, 1024)}
	_, s.key = newPerson(t, s.node, "ada@example.org")
	newWorkspace(t, newClient(s.node.address, s.key))
	return s
}

// killSettings cause compactions and activations during a short test, by a small cache and a short idle time.
var killSettings = []string{"--rate=0", "--address-rate=0", "--cache-size=4MiB", "--idle-after=1s", "--log-level=info"}

// current returns the node's address and the number of restarts so far.
func (s *site) current() (address string, generation int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.address, s.generation
}

// runSteps calls connect with the node's address, then step until ctx ends. A step without a response from the node is
// followed by a wait for a restart, and by connect with the new address.
func (s *site) runSteps(ctx context.Context, connect func(address string), step func() (answered bool)) {
	for {
		address, generation := s.current()
		connect(address)
		for ctx.Err() == nil && step() {
			// The next step has the same connection.
		}
		if ctx.Err() != nil || !s.waitForRestart(ctx, generation) {
			return
		}
	}
}

// waitForRetry waits until the node has restarted since a generation, at most a second, because the failure may have had
// another cause. It reports whether ctx is still valid.
func (s *site) waitForRetry(ctx context.Context, generation int) bool {
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	s.waitForRestart(short, generation)
	return ctx.Err() == nil
}

// waitForRestart waits until the node has restarted since a generation. It returns false if ctx ends first.
func (s *site) waitForRestart(ctx context.Context, generation int) bool {
	s.mu.Lock()
	restarted := s.restarted
	later := s.generation > generation
	s.mu.Unlock()
	if later {
		return true
	}
	select {
	case <-restarted:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *site) restart(t *testing.T) {
	t.Helper()
	s.node.kill()
	expectNoFault(t, s.dir)
	next := start(t, s.dir, slices.Concat(killSettings, s.more)...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = next
	s.generation++
	close(s.restarted)
	s.restarted = make(chan struct{})
}

// acknowledge counts an acknowledged operation for waitForOperations.
func (s *site) acknowledge() {
	select {
	case s.acknowledged <- struct{}{}:
	default:
	}
}

// waitForOperations waits until a number of operations was acknowledged.
func (s *site) waitForOperations(t *testing.T, operations int) {
	t.Helper()
	for range operations {
		select {
		case <-s.acknowledged:
		case <-time.After(patience):
			t.Fatalf("the node acknowledges no operations:\n%s", s.node.logs)
		}
	}
}

// workers are the concurrent clients of a site.
type workers struct {
	writers   []*writer
	followers []*follower
	account   *accountWorker
}

const (
	writerCount = 6
	keyCount    = 3
)

// newWorkers creates the workers. The writers share three keys.
func newWorkers(t *testing.T, s *site, r *rand.Rand) workers {
	t.Helper()
	c := workers{account: newAccountWorker(s, rand.New(rand.NewPCG(*seed, 1)))}
	owner := newClient(s.node.address, s.key)
	defer owner.close()
	var keys []issuedKey
	for i := range keyCount {
		var key issuedKey
		if status, err := owner.postJSON(t.Context(), "/v1/user/api-keys", map[string]string{"name": fmt.Sprint("writer ", i)}, &key); err != nil {
			t.Fatalf("issuing a key: %d %v", status, err)
		}
		keys = append(keys, key)
	}
	owner.expect(t, 201, "MKCOL", drivePath("shared"), "")
	for i := range writerCount {
		w := newWriter(t, s, i, keys[i%keyCount], rand.New(rand.NewPCG(r.Uint64(), uint64(i))))
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
