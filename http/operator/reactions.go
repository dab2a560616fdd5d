package operator

import (
	"context"
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
)

// reactions serves the streams with parked reactions.
type reactions struct{ parked Reactions }

func (r reactions) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: adminReactions, Scope: server.ScopeOperator, Summary: "List the streams whose reactions are parked",
			Handler: server.Answer(http.StatusOK, server.Nothing, r.list)},
		{Method: http.MethodPost, Path: adminReactions + "/retry", Scope: server.ScopeOperator, Summary: "Carry out the reactions of parked streams again",
			Handler: server.Answer(http.StatusOK, server.Body[resumptionRequest], r.retry)},
		{Method: http.MethodPost, Path: adminReactions + "/skip", Scope: server.ScopeOperator, Summary: "Skip the event at which a parked stream failed",
			Handler: server.Answer(http.StatusOK, server.Body[resumptionRequest], r.skip)},
	}
}

// Reactions lists the streams with parked reactions, and resumes them.
type Reactions interface {
	// ParkedReactions returns the parked streams. Errors: *entity.Error.
	ParkedReactions(ctx context.Context) ([]*journalv1.Parked, error)
	// ResumeReactions runs the reactions of a parked stream again, or with skip the reactions after the event that failed.
	// It returns when they have started. Errors: *entity.Error, not_found if the stream is not parked.
	ResumeReactions(ctx context.Context, stream string, skip bool) error
}

// noReactions is a Reactions without parked streams.
type noReactions struct{}

func (noReactions) ParkedReactions(context.Context) ([]*journalv1.Parked, error) { return nil, nil }

func (noReactions) ResumeReactions(context.Context, string, bool) error { return server.ErrNotFound }

// parkedRecord is a stream with parked reactions, and the event at which they failed.
type parkedRecord struct {
	Partition uint32 `json:"partition"`
	Stream    string `json:"stream"`
	Version   uint64 `json:"version"`
	// Event is empty if the event cannot be read.
	Event    string `json:"event,omitzero"`
	Error    string `json:"error"`
	Attempts uint32 `json:"attempts"`
	Since    int64  `json:"since"`
}

// resumptionRequest names a parked stream; empty, for retry only: all parked streams.
type resumptionRequest struct {
	Stream string `json:"stream"`
}

// resumed names the streams that a request has resumed.
type resumed struct {
	Streams []string `json:"streams"`
}

var errNoStream = entity.Errorf(entity.InvalidRequest, "stream is required")

// list returns all parked streams on one page: an operator must look at each of them.
func (r reactions) list(c *server.Call, _ server.None) (operatorPage[parkedRecord], error) {
	rows, err := r.parked.ParkedReactions(c.Context)
	if err != nil {
		return operatorPage[parkedRecord]{}, err
	}
	found := operatorPage[parkedRecord]{Items: []parkedRecord{}}
	for _, row := range rows {
		found.Items = append(found.Items, parkedRecord{
			Partition: row.GetPartition(), Stream: row.GetStream(), Version: row.GetVersion(), Event: row.GetEvent(),
			Error: row.GetError(), Attempts: row.GetAttempts(), Since: row.GetSince(),
		})
	}
	return found, nil
}

func (r reactions) retry(c *server.Call, in resumptionRequest) (resumed, error) {
	if in.Stream != "" {
		return resumed{[]string{in.Stream}}, r.parked.ResumeReactions(c.Context, in.Stream, false)
	}
	rows, err := r.parked.ParkedReactions(c.Context)
	if err != nil {
		return resumed{}, err
	}
	streams := []string{}
	for _, row := range rows {
		err := r.parked.ResumeReactions(c.Context, row.GetStream(), false)
		switch {
		case err == nil:
			streams = append(streams, row.GetStream())
		case !entity.HasCode(err, entity.NotFound): // otherwise somebody else has resumed it meanwhile
			return resumed{}, err
		}
	}
	return resumed{streams}, nil
}

func (r reactions) skip(c *server.Call, in resumptionRequest) (resumed, error) {
	if in.Stream == "" {
		return resumed{}, errNoStream
	}
	return resumed{[]string{in.Stream}}, r.parked.ResumeReactions(c.Context, in.Stream, true)
}
