package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
)

// deltaView is text that an agent is still writing.
type deltaView struct {
	InputSeq uint64 `json:"inputSeq"`
	Text     string `json:"text"`
}

// positions encodes the positions in a stream as the ids of its events, and decodes them.
type positions struct {
	encode func(seq uint64) string
	// decode returns the seq after which the stream goes on. Errors: invalid_cursor.
	decode func(cursor string) (uint64, error)
}

// sessionPositions returns the positions in the stream of a session.
func sessionPositions(c *server.Call, sessionID string) positions {
	binding := eventsBinding(c, sessionID)
	return positions{
		encode: func(seq uint64) string { return c.SealCursor(strconv.FormatUint(seq, 10), binding) },
		decode: func(cursor string) (uint64, error) {
			position, err := c.OpenCursor(cursor, binding)
			if err != nil {
				return 0, err
			}
			return parseSeq(position)
		},
	}
}

// events sends the rows of the session in the path as server-sent events. Package server describes the flow of a stream.
func (s sessions) events(c *server.Call) error {
	id, err := pathSession(c, "sessionId")
	if err != nil {
		return err
	}
	return s.follow(c, id, sessionPositions(c, id), nil)
}

// follow sends the rows of a session after the client's position, and the text that is being written between them. The stream ends when
// awaitEnd returns nil; if awaitEnd is nil, the stream ends only with the request, or when its client has lost the access.
func (s sessions) follow(c *server.Call, sessionID string, at positions, awaitEnd func(context.Context) error) error {
	after, err := decodeEventsPosition(c, at)
	if err != nil {
		return withhold(c, err)
	}
	if c.Request.Method == http.MethodHead { // StreamTo does not subscribe for HEAD
		if _, err := describeSession(c, sessionID); err != nil {
			return err
		}
	}
	return c.StreamTo(func(ctx context.Context, client server.StreamClient) (func(context.Context) error, error) {
		follow, err := s.Timelines.FollowTimeline(ctx, entity.TimelineSubscription{
			Kind: entity.KindSession, Identity: session.Identity(c.Workspace.ID, sessionID), Principal: c.Caller.Principal, After: after,
			Send: func(batch entity.TimelineBatch) error {
				frames, err := encodeFrames(batch, at.encode)
				if err != nil || len(frames) == 0 {
					return err
				}
				return client.Send(frames)
			},
		})
		if err != nil || awaitEnd == nil {
			return follow, err
		}
		return func(ctx context.Context) error {
			ctx, end := context.WithCancel(ctx)
			defer end()
			go func() {
				if awaitEnd(ctx) == nil {
					end()
				}
			}()
			return follow(ctx)
		}, nil
	})
}

// eventsBinding returns the binding of the ids of a stream's events.
func eventsBinding(c *server.Call, sessionID string) []byte {
	return server.Binding("session events", c.Workspace.ID, sessionID)
}

// decodeEventsCursor decodes the cursor after which the stream begins; "" if there is none. It does not open the cursor. The header
// Last-Event-ID takes precedence over the parameter.
func decodeEventsCursor(c *server.Call) (string, error) {
	cursor, _, err := decodeStreamQuery(c)
	return cursor, err
}

// decodeStreamQuery is decodeEventsCursor for a stream with further parameters, which the returned query has.
func decodeStreamQuery(c *server.Call, further ...string) (string, *server.Query, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, append(further, "cursor")...)
	if err != nil {
		return "", nil, err
	}
	cursor := q.Text("cursor")
	switch last := c.Request.Header["Last-Event-Id"]; {
	case len(last) > 1, q.Has("cursor") && cursor == "":
		return "", nil, server.ErrInvalidCursor
	case len(last) == 1 && last[0] != "":
		cursor = last[0]
	}
	return cursor, q, nil
}

// decodeEventsPosition decodes the seq after which the stream begins.
func decodeEventsPosition(c *server.Call, at positions) (uint64, error) {
	cursor, err := decodeEventsCursor(c)
	if err != nil || cursor == "" {
		return 0, err
	}
	return at.decode(cursor)
}

// parseSeq returns the seq in an opened cursor. Errors: invalid_cursor.
func parseSeq(position string) (uint64, error) {
	seq, err := strconv.ParseUint(position, 10, 64)
	if err != nil {
		return 0, server.ErrInvalidCursor
	}
	return seq, nil
}

// encodeFrames encodes a batch as server-sent events. cursor returns the id of the event of a row.
func encodeFrames(batch entity.TimelineBatch, cursor func(seq uint64) string) ([]byte, error) {
	var frames []byte
	for _, m := range batch.Passed {
		data, err := encodeDelta(m)
		if err != nil {
			return nil, err
		}
		if data != nil {
			frames = appendFrame(frames, "", "delta", data)
		}
	}
	for _, r := range batch.Rows {
		row, err := viewRow(r)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(row)
		if err != nil {
			return nil, err
		}
		frames = appendFrame(frames, cursor(r.Version), row.Kind, data)
	}
	return frames, nil
}

// encodeDelta returns the data of a delta; nil for a thought, which is shown when it is whole.
func encodeDelta(m proto.Message) ([]byte, error) {
	delta, ok := m.(*sessionv1.PublishDelta)
	if !ok || delta.GetThought() {
		return nil, nil
	}
	return json.Marshal(deltaView{delta.GetInputSeq(), delta.GetText()})
}

// appendFrame appends an event (HTML standard, server-sent events). data is JSON, which has no line breaks.
func appendFrame(to []byte, id, event string, data []byte) []byte {
	if id != "" {
		to = append(append(append(to, "id: "...), id...), '\n')
	}
	to = append(append(append(to, "event: "...), event...), '\n')
	return append(append(append(to, "data: "...), entity.EscapeLineEnds(data)...), "\n\n"...)
}
