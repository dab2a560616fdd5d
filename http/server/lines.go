package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/atelier-run/atelier/entity"
)

// Lines is a response of newline-delimited JSON. Each line is sent at once. It may be used concurrently.
type Lines struct {
	w       *Response
	control *http.ResponseController

	// writing is held during a write.
	writing sync.Mutex
	// mu guards the fields below.
	mu       sync.Mutex
	deadline deadline
	isEnding bool
	// every is the time between lines of KeepAlive.
	every time.Duration
}

// errLinesEnded is returned for lines after BeginEnd.
var errLinesEnded = errors.New("the response is ending")

// OpenLines sends the head of a response of newline-delimited JSON. After it no error response is possible. The body of the
// request must have been read.
func (c *Call) OpenLines() *Lines {
	control := http.NewResponseController(c.Response.ResponseWriter)
	// The whole body is read: a read deadline would end the request; see limitBody.
	control.SetReadDeadline(time.Time{})
	l := &Lines{
		w: c.Response, control: control, every: c.server.options.Heartbeat,
		deadline: deadline{set: control.SetWriteDeadline, stall: c.server.options.Limits.StallTime},
	}
	l.deadline.extend()
	header := c.Response.Header()
	header["Content-Type"] = []string{"application/x-ndjson"}
	header["Cache-Control"] = []string{"no-store, no-transform"} // a proxy that compresses would hold lines back
	header["X-Content-Type-Options"] = noSniff
	header["X-Accel-Buffering"] = []string{"no"} // nginx would hold lines back
	c.Response.WriteHeader(http.StatusOK)
	control.Flush()
	return l
}

// Write writes a line with its newline. It waits for the client, up to Limits.StallTime. Errors: the client has gone or stalls,
// or BeginEnd was called.
func (l *Lines) Write(line []byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	if !l.extend() {
		return errLinesEnded
	}
	return l.write(line)
}

// probeEvery is the time between the lines of KeepAlive to a client that may have gone.
const probeEvery = time.Second

// KeepAlive writes a line each Options.Heartbeat until ctx ends, unless another line is being written. Proxies would end a
// silent response, and a client that has gone without closing its connection would not be noticed. Once the client has closed its sending
// side, KeepAlive writes a line at once, which the system of a client that has gone refuses, and then a line each probeEvery, which fails
// then. Errors: the errors of Write.
func (l *Lines) KeepAlive(ctx context.Context, line []byte) error {
	l.w.isKeptAlive.Store(true)
	ticker := time.NewTicker(l.every)
	defer ticker.Stop()
	halfClosed := l.w.Request.Context().Done()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-halfClosed:
			halfClosed = nil
			ticker.Reset(min(l.every, probeEvery))
		case <-ticker.C:
		}
		if !l.writing.TryLock() {
			continue // the other write has a deadline
		}
		err := errLinesEnded
		if l.extend() {
			err = l.write(line)
		}
		l.writing.Unlock()
		if err != nil {
			return err
		}
	}
}

// WriteLast writes the last line. A client that does not read loses it after a second.
func (l *Lines) WriteLast(line []byte) error {
	l.BeginEnd()
	l.writing.Lock()
	defer l.writing.Unlock()
	l.control.SetWriteDeadline(time.Now().Add(endGrace))
	return l.write(line)
}

// BeginEnd refuses further lines but the last, and gives a write in flight a second.
func (l *Lines) BeginEnd() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isEnding {
		l.control.SetWriteDeadline(time.Now().Add(endGrace))
	}
	l.isEnding = true
}

func (l *Lines) extend() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isEnding {
		l.deadline.extend()
	}
	return !l.isEnding
}

func (l *Lines) write(line []byte) error {
	line = entity.EscapeLineEnds(line)
	n, err := l.w.Write(line)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return err
	}
	return l.control.Flush()
}
