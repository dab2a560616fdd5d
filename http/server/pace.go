package server

import (
	"io"
	"net/http"
	"time"
)

// bodyPace sets the read deadline of a connection so that a body arrives with a minimum rate: in each window of the time that is
// spent waiting for it, at least a number of bytes. A client may send them in any pattern. The time in which the server does not read
// is not the client's. To be cheap the deadline is set at most eight times in a window, so that a client has at least seven
// eighths of it.
type bodyPace struct {
	set    func(time.Time) error
	window time.Duration
	// least is the number of bytes of a window.
	least int64
	// until bounds each deadline; zero: it does not.
	until time.Time

	// last is the time at which the deadline was set, waited the time that was spent waiting in the present window, and bytes the number
	// of bytes that have arrived in it.
	last   time.Time
	waited time.Duration
	bytes  int64
}

// beforeRead prepares the deadline of a read.
func (p *bodyPace) beforeRead(now time.Time) {
	if !p.last.IsZero() && now.Sub(p.last) <= p.window/8 {
		return
	}
	p.last = now
	end := now.Add(p.window - p.waited)
	if !p.until.IsZero() && end.After(p.until) {
		end = p.until
	}
	p.set(end)
}

// afterRead counts n bytes that have arrived in a time. With enough of them the next window begins.
func (p *bodyPace) afterRead(n int, took time.Duration) {
	p.bytes, p.waited = p.bytes+int64(n), p.waited+took
	if p.bytes >= p.least && p.waited > p.window/8 {
		p.bytes, p.waited, p.last = 0, 0, time.Time{}
	}
}

// leastBytes returns the bytes that a body must have in a window.
func (l Limits) leastBytes(window time.Duration) int64 {
	return max(1, int64(max(l.BodyRate, 0))*int64(window/time.Second))
}

// pacedBody is the body of an ordinary request, which must arrive in the time of the request, and with the minimum rate.
type pacedBody struct {
	io.ReadCloser
	pace bodyPace
}

// withPacedBody returns a copy of a request. Its body must arrive with the minimum rate, in windows of the time of a request's head. The
// request of net/http keeps its body: net/http recognizes by its type whether a client waits for 100 Continue.
func (s *Server) withPacedBody(w *Response, r *http.Request) *http.Request {
	if r.ContentLength == 0 {
		return r
	}
	limits, paced := s.options.Limits, *r
	paced.Body = &pacedBody{r.Body, bodyPace{
		set: http.NewResponseController(w.ResponseWriter).SetReadDeadline, window: limits.HeaderTime, least: limits.leastBytes(limits.HeaderTime),
		until: w.started.Add(limits.RequestTime),
	}}
	return &paced
}

func (b *pacedBody) Read(p []byte) (int, error) {
	began := time.Now()
	b.pace.beforeRead(began)
	n, err := b.ReadCloser.Read(p)
	b.pace.afterRead(n, time.Since(began))
	if err == io.EOF {
		b.pace.set(b.pace.until) // net/http reads ahead from now on
	}
	return n, err
}
