package entity

import (
	"google.golang.org/protobuf/proto"

	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// A TimelineSubscription requests the timeline of an entity as a stream: the rows after a version, and then each new row and
// each message that is passed on.
type TimelineSubscription struct {
	Kind, Identity string
	Principal      *wirev1.Principal
	// After is the version after which the stream begins; 0 begins it with the first row.
	After uint64
	// Send passes a batch to the reader, and may block while the reader takes no more. An error ends the stream. The messages of
	// a batch are shared with other streams and must not be changed.
	Send func(TimelineBatch) error
}

// A TimelineBatch is the next part of a stream, in order: first the messages that were passed on, then the rows. It has at
// least one of them.
type TimelineBatch struct {
	// Passed are commands that Timeline.Passes accepts. They come after the rows that were decided before them. A
	// stream that is slow or that resumes lacks some of them.
	Passed []proto.Message
	Rows   []TimelineRow
}

// A TimelineRow is one row of a timeline.
type TimelineRow struct {
	Version uint64
	// At is the time of the event, in milliseconds since the Unix epoch.
	At    int64
	Event proto.Message
}

// TimelineRows decodes the rows of a page of a timeline. It fails if a message is malformed or its type unknown.
func TimelineRows(page *wirev1.Timeline) ([]TimelineRow, error) {
	rows := make([]TimelineRow, len(page.GetEvents()))
	for i, e := range page.GetEvents() {
		m, err := Message(e.GetName(), e.GetPayload())
		if err != nil {
			return nil, err
		}
		rows[i] = TimelineRow{Version: e.GetVersion(), At: e.GetAt(), Event: m}
	}
	return rows, nil
}
