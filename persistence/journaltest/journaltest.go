// Package journaltest holds every journal to the contract of package persistence: one suite for each way to commit.
//
//	func TestJournal(t *testing.T) {
//		journaltest.Run(t, func(t *testing.T) journaltest.Harness { return newHarness(t) })
//	}
package journaltest

import (
	"testing"

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
