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
)

// Frame is a row of a stream, with the cursor that resumes behind it.
type Frame struct {
	Row
	Cursor string
}

// EventsQuery chooses what a stream sends.
type EventsQuery struct {
	// Cursor is a frame's or a page's; empty: from the first row on.
	Cursor string
	// Reads adds read markers.
	Reads bool
}

// Events follows a workspace's activity: what was, then what is. Where a connection ends, or nothing comes over it, it
// resumes with another behind the last row, so that each row comes exactly once, until ctx ends or the server refuses
// for good. An error is the last thing that it yields; there is always one, unless the caller stops.
func (c *Client) Events(ctx context.Context, slug string, q EventsQuery) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		f := &follower{client: c, path: workspacePath(slug, activityPath+"/events"), cursor: q.Cursor, retry: firstRetry}
		if q.Reads {
			f.query = url.Values{"reads": {"1"}}
		}
		if err := f.follow(ctx, func(frame Frame) bool { return yield(frame, nil) }); !errors.Is(err, errStopped) {
			yield(Frame{}, err)
		}
	}
}

const (
	firstRetry   = time.Second
	longestRetry = 30 * time.Second
	// silence is how long a stream may be without a byte; the server's comments come several times in it.
	silence = time.Minute
	// longestLine is longer than any row.
	longestLine = 1 << 20
)

var (
	// errStopped ends a stream that its reader wants no more of.
	errStopped = errors.New("stopped")
	// errMalformed ends one that would be no better the next time.
	errMalformed = errors.New("client: a frame is not as the API has it")
)

// follower is a stream over its connections.
type follower struct {
	client *Client
	path   string
	query  url.Values
	cursor string
	// retry is the pause before the next connection, as the server has it.
	retry time.Duration
	// failures in a row.
	failures int
}

// follow gives the error that ended the stream.
func (f *follower) follow(ctx context.Context, frame func(Frame) bool) error {
	for {
		err := f.segment(ctx, frame)
		switch {
		case errors.Is(err, errStopped), errors.Is(err, errMalformed):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		wait := f.retry
		if err != nil {
			var refused *Error
			if errors.As(err, &refused) && !refused.passing() {
				return err
			}
			f.failures++
			wait = min(f.retry<<min(f.failures-1, 10), longestRetry)
			if refused != nil {
				wait = max(wait, min(refused.RetryAfter, longestRetry))
			}
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// passing tells of a refusal that it says nothing of the next attempt.
func (e *Error) passing() bool {
	return e.Status == http.StatusTooManyRequests || e.Status >= http.StatusInternalServerError
}

// segment reads one connection to its end; nil: a clean one.
func (f *follower) segment(ctx context.Context, frame func(Frame) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
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
		return refusal(response)
	}
	defer response.Body.Close()
	return f.read(response.Body, frame, func() { quiet.Reset(silence) })
}

// read takes frames apart (HTML standard, server-sent events). What the end cuts off is dropped.
func (f *follower) read(body io.Reader, frame func(Frame) bool, alive func()) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4096), longestLine)
	var id string
	var data []byte
	for lines.Scan() {
		alive()
		if len(lines.Bytes()) == 0 {
			if data != nil {
				if err := f.deliver(id, data, frame); err != nil {
					return err
				}
			}
			data = nil
			continue
		}
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			id = string(value)
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
		return fmt.Errorf("%w: it has a line of more than %d bytes", errMalformed, longestLine)
	}
	return lines.Err()
}

func (f *follower) deliver(id string, data []byte, frame func(Frame) bool) error {
	next := Frame{Cursor: id}
	if err := json.Unmarshal(data, &next.Row); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	f.cursor, f.failures = id, 0
	if !frame(next) {
		return errStopped
	}
	return nil
}
