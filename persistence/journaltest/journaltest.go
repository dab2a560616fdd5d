// Package journaltest is a suite of tests of the contract of persistence.Journal, for every implementation.
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

// Journal is an open journal.
type Journal interface {
	persistence.Journal
	Close() error
}

// Harness is the storage of one journal with at least two partitions. The opened journal leads all of them.
type Harness interface {
	// Open opens the journal. A journal that was opened before has been closed or has crashed.
	Open() Journal
	// Members returns at least two members of an open journal, and a function that makes one of them the leader of a
	// partition and returns the new epoch. The first member leads all partitions when the journal is opened.
	Members(j Journal) (members []persistence.Journal, move func(p persistence.Partition, member int) (uint64, error))
	// Crash loses everything that is not durable, as a loss of power does. The open journal is unusable afterwards.
	Crash()
	// Directory returns a name for a checkpoint, which does not exist yet.
	Directory() string
	// OpenCopy opens a checkpoint as a separate journal.
	OpenCopy(dir string) Journal
}

// Run runs the suite. It calls make for each test.
func Run(t *testing.T, make func(t *testing.T) Harness) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, h Harness)
	}{
		{"append", testAppend},
		{"conflict", testConflict},
		{"refused in a batch", testRefusedInBatch},
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
		{"feed skips streams", testFeedSkips},
		{"view is stable", testViewIsStable},
		{"view includes acknowledged proposals", testViewIncludesAcknowledged},
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

// eventTime is the time of all events.
var eventTime = time.UnixMilli(1_700_000_000_123).UTC()

// client appends to a journal, and waits for the results.
type client struct {
	t testing.TB
	Journal
	epochs map[persistence.Partition]uint64
}

func openClient(t testing.TB, h Harness) *client { return newClient(t, h.Open()) }

func newClient(t testing.TB, j Journal) *client {
	c := &client{t: t, Journal: j}
	c.epochs = ledEpochs(j)
	return c
}

// ledEpochs returns the epochs under which a journal leads its partitions.
func ledEpochs(j Journal) map[persistence.Partition]uint64 {
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

// proposal returns a proposal under the current epoch, with an event for each name.
func (c *client) proposal(p persistence.Partition, s persistence.Stream, expected uint64, names ...string) persistence.Proposal {
	proposed := persistence.Proposal{Partition: p, Stream: s, Expected: expected, Epoch: c.epochs[p]}
	for _, name := range names {
		proposed.Events = append(proposed.Events, event(name))
	}
	return proposed
}

func event(name string) persistence.Event {
	return persistence.Event{Name: name, Payload: []byte("payload of " + name), At: eventTime, Actor: "usr_1", CommandID: "cmd_" + name, RequestID: "req_" + name}
}

// appendAll appends all proposals at once, and returns their results.
func (c *client) appendAll(proposals ...persistence.Proposal) []persistence.Result {
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

func (c *client) appendOne(p persistence.Proposal) persistence.Result { return c.appendAll(p)[0] }

// mustAppend appends proposals. All of them must be accepted.
func (c *client) mustAppend(proposals ...persistence.Proposal) {
	c.t.Helper()
	for i, r := range c.appendAll(proposals...) {
		if r.Err != nil {
			c.t.Fatalf("append %d of %s: %v", i, proposals[i].Stream, r.Err)
		}
	}
}

func (c *client) mustView() persistence.View {
	c.t.Helper()
	v, err := c.View()
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// withView calls fn with a view of the durable state.
func (c *client) withView(fn func(v persistence.View)) {
	c.t.Helper()
	v := c.mustView()
	fn(v)
	if err := v.Close(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) head(p persistence.Partition, s persistence.Stream) (version uint64) {
	c.t.Helper()
	c.withView(func(v persistence.View) { version = head(c.t, v, p, s) })
	return version
}

func (c *client) mustClose() {
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

// eventTexts returns the events of an iteration as "stream/version#sequence name".
func eventTexts(t testing.TB, walk func(yield func(persistence.Event, error) bool)) []string {
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

// entryTexts returns the entries of a query as "value/order data".
func entryTexts(t testing.TB, v persistence.View, p persistence.Partition, q persistence.Query) []string {
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

func expectTexts(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s:\n got %q\nwant %q", what, got, want)
	}
}
