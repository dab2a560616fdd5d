// Package activity implements the rules of the file activity of a workspace: a sequence of rows, one for each operation on
// the drive.
//
// Most operations become a row of their own (rules.go). Operations inside generated folders, such as node_modules, are
// folded into summaries, and repeated reads into counts (counts.go). A row is stored as the JSON that pages and streams
// send, preceded by one byte for its kind (row.go). Its seq is its version in the stream.
//
// Index entries and read counts are written up to a second after their rows, for many rows at once (index.go). The tail
// (tail.go) holds the rows and counts that are not in the indexes yet. Queries add the tail to the rows that they find
// there.
//
// A change of the drive is a chain of steps, so that after a crash the drive and the rows agree:
//
//  1. Intend stores an intent before the drive changes anything, and authorizes the author.
//  2. The drive changes the file with one rename.
//  3. Complete removes the intent and appends its row, or Abandon removes it if the rename failed.
//  4. After a crash, recovery compares each open intent with the drive and sends Complete or Abandon.
package activity

import (
	"google.golang.org/protobuf/proto"
	"time"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Reading is the need of a caller that reads or streams the activity of a workspace.
var Reading = entity.Reads(entity.FilesRead)

// FlushTimer is the ID of the timer that flushes summaries.
const FlushTimer = "flush"

// Kind describes activity to the runtime. An activity entity is owned by the workspace with the same identity. Most of its
// state is in indexes of the journal, so the runtime calls Decide and Evolve of this package and not Kind.Carry.
var Kind = entity.Kind{
	Name: entity.KindActivity, Owner: entity.KindWorkspace, Version: 1, Retention: entity.CommandRetention,
	IsCommand: func(m proto.Message) bool {
		switch m.(type) {
		case activityv1.Command, activityv1.Query:
			return true
		}
		return false
	},
	// Rows are stored as JSON and not as messages.
	IsEvent: func(proto.Message) bool { return false },
	Access:  accessOf,
	// The timer that writes summaries depends on the open folds.
	EffectIndexes: []string{OpenFolds},
	Pauses:        map[string]time.Duration{FlushTimer: FoldWindow},
}

// accessOf returns the access to a command or query, which the workspace checks.
func accessOf(m proto.Message) (entity.Access, error) {
	switch m.(type) {
	case *activityv1.ReadHistory, *activityv1.ReadFeed, *activityv1.ReadSeenBy, *activityv1.ReadLatestWriters:
		return entity.Requires(Reading), nil
	case *activityv1.Intend:
		// This authorizes the author again when the change is decided, which may be long after the upload began.
		return entity.Requires(entity.Changes(entity.FilesWrite)), nil
	case activityv1.Query, activityv1.Command:
		return entity.PlatformOnly(), nil
	}
	return entity.Access{}, entity.UnknownCommand(entity.KindActivity, m)
}

// Subscription requests the rows of a workspace as frames of a server-sent event stream: the rows after a position, and
// then each new row.
type Subscription struct {
	WorkspaceID string
	Principal   *wirev1.Principal
	// After is the position after which the stream begins; 0 begins it with the first row.
	After uint64
	// Reads includes read markers.
	Reads bool
	// Send writes complete frames to the client, and blocks while the client accepts no more. It must not use the bytes after it
	// returns. An error ends the stream.
	Send func(frames []byte) error
	// TrySend writes whole frames to the client without waiting, and reports whether it wrote them all. If not, the next call
	// is Send with the same frames, which writes the missing bytes; until then the frames must not change. Several goroutines
	// may call the two, one at a time. nil: Send alone is called.
	TrySend func(frames []byte) bool
}
