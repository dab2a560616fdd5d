package http

import (
	"context"

	"github.com/atelier-run/atelier/entity"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
)

// Reactions shows operators the streams whose reactions are parked, and resumes them.
type Reactions interface {
	// ParkedReactions returns the parked streams. Errors: *entity.Error.
	ParkedReactions(ctx context.Context) ([]*journalv1.Parked, error)
	// ResumeReactions has the reactions of a parked stream carried out again; with skip, from behind the event that
	// failed. It returns when that has begun. Errors: *entity.Error, not_found if the stream is not parked.
	ResumeReactions(ctx context.Context, stream string, skip bool) error
}

// noReactions has no parked streams.
type noReactions struct{}

func (noReactions) ParkedReactions(context.Context) ([]*journalv1.Parked, error) { return nil, nil }

func (noReactions) ResumeReactions(context.Context, string, bool) error { return errNotFound }

// parkedRecord is a stream whose reactions are parked, and the event at which they failed.
type parkedRecord struct {
	Partition uint32 `json:"partition"`
	Stream    string `json:"stream"`
	Version   uint64 `json:"version"`
	// Event is left out if the event could not be read.
	Event    string `json:"event,omitzero"`
	Error    string `json:"error"`
	Attempts uint32 `json:"attempts"`
	Since    int64  `json:"since"`
}

// resumptionRequest names a parked stream; empty, in a retry only: every parked stream.
type resumptionRequest struct {
	Stream string `json:"stream"`
}

// resumed names the streams that a request has resumed.
type resumed struct {
	Streams []string `json:"streams"`
}

var errNoStream = entity.Errorf(entity.InvalidRequest, "stream is required")

// listParked answers with all parked streams: each is one for an operator to look at.
func (s *Server) listParked(c *call, _ none) (roster[parkedRecord], error) {
	rows, err := s.options.Reactions.ParkedReactions(c.ctx)
	if err != nil {
		return roster[parkedRecord]{}, err
	}
	found := roster[parkedRecord]{Items: []parkedRecord{}}
	for _, row := range rows {
		found.Items = append(found.Items, parkedRecord{
			Partition: row.GetPartition(), Stream: row.GetStream(), Version: row.GetVersion(), Event: row.GetEvent(),
			Error: row.GetError(), Attempts: row.GetAttempts(), Since: row.GetSince(),
		})
	}
	return found, nil
}

func (s *Server) retryParked(c *call, in resumptionRequest) (resumed, error) {
	streams := []string{in.Stream}
	if in.Stream == "" {
		rows, err := s.options.Reactions.ParkedReactions(c.ctx)
		if err != nil {
			return resumed{}, err
		}
		streams = streams[:0]
		for _, row := range rows {
			streams = append(streams, row.GetStream())
		}
	}
	for _, stream := range streams {
		if err := s.options.Reactions.ResumeReactions(c.ctx, stream, false); err != nil {
			return resumed{}, err
		}
	}
	return resumed{streams}, nil
}

func (s *Server) skipParked(c *call, in resumptionRequest) (resumed, error) {
	if in.Stream == "" {
		return resumed{}, errNoStream
	}
	return resumed{[]string{in.Stream}}, s.options.Reactions.ResumeReactions(c.ctx, in.Stream, true)
}
