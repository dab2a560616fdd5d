package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/atelier-run/atelier/retry"
)

// Frame is a row of a stream, with the cursor that resumes the stream after it.
type Frame struct {
	Row
	Cursor string
}

// EventsQuery selects the rows of a stream.
type EventsQuery struct {
	// Cursor is the cursor of a frame or a page; empty: the stream begins with the first row.
	Cursor string
	// Reads includes read markers.
	Reads bool
}

// Events streams the activity of a workspace: the rows so far, and then each new row. If a connection ends or is silent for a
// minute, Events opens a new connection that resumes after the last row, so that it yields each row exactly once. It ends
// when ctx ends or the server refuses with an error that is not temporary. The last value that it yields is the error, unless
// the caller stops the iteration.
func (c *Client) Events(ctx context.Context, slug string, q EventsQuery) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		f := &follower{client: c, path: workspacePath(slug, activityPath+"/events"), cursor: q.Cursor, retry: firstRetry}
		if q.Reads {
			f.query = url.Values{"reads": {"1"}}
		}
		f.deliver = func(_, id string, data []byte) error {
			next := Frame{Cursor: id}
			if err := json.Unmarshal(data, &next.Row); err != nil {
				return fmt.Errorf("%w: %w", errMalformed, err)
			}
			f.advance(id)
			if !yield(next, nil) {
				return errStopped
			}
			return nil
		}
		if err := f.follow(ctx); !errors.Is(err, errStopped) {
			yield(Frame{}, err)
		}
	}
}

const (
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
	// maxSilence is the longest time without a byte. The server sends comments at least twice in this time.
	maxSilence = time.Minute
	// maxLineBytes is the greatest length of an event (followSession in the reference): JSON may have six bytes for each of the
	// 200,000 characters of an input.
	maxLineBytes = 4 << 20
)

var (
	// errStopped ends a stream because the caller has stopped the iteration.
	errStopped = errors.New("stopped")
	// errMalformed ends a stream with an invalid frame, which another connection would repeat.
	errMalformed = errors.New("client: the server sent a malformed frame")
)

// follower is a stream, which may take several connections.
type follower struct {
	client *Client
	path   string
	query  url.Values
	cursor string
	// deliver passes on an event. Errors: errMalformed, errStopped if the caller has stopped the iteration.
	deliver func(event, id string, data []byte) error
	// retry is the pause before the next connection, which the server may set.
	retry time.Duration
	// failures is the number of connections in a row that failed without a row.
	failures int
}

// follow opens connections until the stream ends, and returns the error that ended it.
func (f *follower) follow(ctx context.Context) error {
	for {
		err := f.followConnection(ctx)
		switch {
		case errors.Is(err, errStopped), errors.Is(err, errMalformed):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		wait := f.retry
		if err != nil {
			var refused *Error
			if errors.As(err, &refused) && !refused.temporary() {
				return err
			}
			f.failures++
			wait = retry.Policy{First: f.retry, Longest: longestRetry}.Limit(f.failures)
			if refused != nil {
				wait = max(wait, min(refused.RetryAfter, longestRetry))
			}
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// temporary reports whether another attempt may succeed.
func (e *Error) temporary() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError
}

// followConnection reads one connection to its end. It returns nil if the server ended the response normally.
func (f *follower) followConnection(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watchdog := time.AfterFunc(maxSilence, cancel)
	defer watchdog.Stop()
	request, err := f.client.newRequest(ctx, http.MethodGet, f.path, f.query, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "text/event-stream")
	if f.cursor != "" {
		request.Header.Set("Last-Event-ID", f.cursor)
	}
	response, err := f.client.http.Do(request)
	if err != nil {
		return err
	}
	if !succeeded(response) {
		return newError(response)
	}
	defer response.Body.Close()
	return f.read(response.Body, func() { watchdog.Reset(maxSilence) })
}

// read parses frames (HTML standard, server-sent events). It calls alive for each line. An incomplete frame at the end is
// dropped.
func (f *follower) read(body io.Reader, alive func()) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4096), maxLineBytes)
	var id, event string
	var data []byte
	for lines.Scan() {
		alive()
		if len(lines.Bytes()) == 0 {
			if data != nil {
				if err := f.deliver(event, id, data); err != nil {
					return err
				}
			}
			data, event = nil, ""
			continue
		}
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			id = string(value)
		case "event":
			event = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 20); err == nil {
				f.retry = min(time.Duration(ms)*time.Millisecond, longestRetry)
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%w: a line has more than %d bytes", errMalformed, maxLineBytes)
	}
	return lines.Err()
}

// advance moves the position of the stream to a row.
func (f *follower) advance(cursor string) { f.cursor, f.failures = cursor, 0 }
