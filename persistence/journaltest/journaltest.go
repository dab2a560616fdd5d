// Package journaltest holds every journal to the contract of package persistence: one suite for each way to commit.
//
//	func TestJournal(t *testing.T) {
//		journaltest.Run(t, func(t *testing.T) journaltest.Harness { return newHarness(t) })
//	}
package journaltest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/persistence"
)

// Journal is what a harness opens.
type Journal interface {
	persistence.Journal
	Close() error
}

// Harness is the storage of one journal. The journal has at least two partitions and leads them all.
type Harness interface {
	// Open opens what is stored. The one that was opened before has been closed, or has crashed.
	Open() Journal
	// Members returns at least two members of an open journal and what makes one of them lead a partition, under the epoch
	// that move returns. The first leads all partitions when the journal is opened.
	Members(j Journal) (members []persistence.Journal, move func(p persistence.Partition, member int) (uint64, error))
	// Crash loses what is not durable, as a loss of power would. The open journal is of no more use.
	Crash()
	// Directory is a name for a checkpoint that does not exist yet.
	Directory() string
	// OpenCopy opens a checkpoint as a journal of its own.
	OpenCopy(dir string) Journal
}

// Run runs the suite; make is called for each test.
func Run(t *testing.T, make func(t *testing.T) Harness) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, h Harness)
	}{
		{"append", testAppend},
		{"conflict", testConflict},
		{"refusals leave the batch alone", testRefusals},
		{"epoch", testEpoch},
		{"revision", testRevision},
		{"order", testOrder},
		{"any bytes", testAnyBytes},
		{"reopen", testReopen},
		{"crash", testCrash},
		{"index changes", testIndexChanges},
		{"index queries", testIndexQueries},
		{"index prefix", testIndexPrefix},
		{"index after", testIndexAfter},
		{"lookup", testLookup},
		{"read", testRead},
		{"feed", testFeed},
		{"feed passes over", testFeedPasses},
		{"view stays", testViewStays},
		{"view includes what is done", testViewIncludes},
		{"snapshot", testSnapshot},
		{"checkpoint", testCheckpoint},
		{"checkpoint while appending", testCheckpointWhileAppending},
		{"watch", testWatch},
		{"watch ends", testWatchEnds},
		{"moves", testMoves},
		{"close", testClose},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, make(t)) })
	}
	t.Run("model", func(t *testing.T) { testModel(t, make) })
}

// at is the time of every event whose time does not matter.
var at = time.UnixMilli(1_700_000_000_123).UTC()

// client asks a journal and waits for its answers.
type client struct {
	t testing.TB
	Journal
	epochs map[persistence.Partition]uint64
}

func open(t testing.TB, h Harness) *client { return newClient(t, h.Open()) }

func newClient(t testing.TB, j Journal) *client {
	c := &client{t: t, Journal: j}
	c.epochs = ownership(j)
	return c
}

// ownership is the epochs that a journal leads its partitions under.
func ownership(j Journal) map[persistence.Partition]uint64 {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var mu sync.Mutex
	epochs := make(map[persistence.Partition]uint64)
	two := make(chan struct{})
	j.Watch(ctx, func(n persistence.Notice) {
		mu.Lock()
		defer mu.Unlock()
		before := len(epochs)
		if n.Owned {
			epochs[n.Partition] = n.Epoch
		}
		if before < 2 && len(epochs) == 2 {
			close(two)
		}
	})
	<-two
	mu.Lock()
	defer mu.Unlock()
	return epochs
}

// proposal is one under the current epoch.
func (c *client) proposal(p persistence.Partition, s persistence.Stream, expected uint64, names ...string) persistence.Proposal {
	proposed := persistence.Proposal{Partition: p, Stream: s, Expected: expected, Epoch: c.epochs[p]}
	for _, name := range names {
		proposed.Events = append(proposed.Events, event(name))
	}
	return proposed
}

func event(name string) persistence.Event {
	return persistence.Event{Name: name, Payload: []byte("payload of " + name), At: at, Actor: "usr_1", CommandID: "cmd_" + name, RequestID: "req_" + name}
}

// all appends without waiting in between, and waits for the results.
func (c *client) all(proposals ...persistence.Proposal) []persistence.Result {
	results := make([]persistence.Result, len(proposals))
	var done sync.WaitGroup
	done.Add(len(proposals))
	for i, p := range proposals {
		c.Append(p, func(r persistence.Result) {
			results[i] = r
			done.Done()
		})
	}
	done.Wait()
	return results
}

func (c *client) one(p persistence.Proposal) persistence.Result { return c.all(p)[0] }

// must appends what is to succeed.
func (c *client) must(proposals ...persistence.Proposal) {
	c.t.Helper()
	for i, r := range c.all(proposals...) {
		if r.Err != nil {
			c.t.Fatalf("append %d of %s: %v", i, proposals[i].Stream, r.Err)
		}
	}
}

func (c *client) view() persistence.View {
	c.t.Helper()
	v, err := c.View()
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// look calls fn with a view of what is durable now.
func (c *client) look(fn func(v persistence.View)) {
	c.t.Helper()
	v := c.view()
	fn(v)
	if err := v.Close(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) head(p persistence.Partition, s persistence.Stream) (version uint64) {
	c.t.Helper()
	c.look(func(v persistence.View) { version = head(c.t, v, p, s) })
	return version
}

func (c *client) close() {
	c.t.Helper()
	if err := c.Close(); err != nil {
		c.t.Fatal(err)
	}
}

func head(t testing.TB, v persistence.View, p persistence.Partition, s persistence.Stream) uint64 {
	t.Helper()
	version, err := v.Head(p, s)
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// names are what a walk over events yields, as "stream/version#sequence name".
func names(t testing.TB, walk func(yield func(persistence.Event, error) bool)) []string {
	t.Helper()
	var out []string
	for e, err := range walk {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s/%d#%d %s", e.Stream, e.Version, e.Sequence, e.Name))
	}
	return out
}

// rows are what a walk over entries yields, as "value/order data".
func rows(t testing.TB, v persistence.View, p persistence.Partition, q persistence.Query) []string {
	t.Helper()
	var out []string
	for e, err := range v.Index(p, q) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s/%d %s", e.Value, e.Order, e.Data))
	}
	return out
}

func equal(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s:\n got %q\nwant %q", what, got, want)
	}
}
