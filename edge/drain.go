package edge

import (
	"io"
	"net/http"
	"time"
)

// The bounds of the part of a refused request's body that is read before the response.
const (
	maxDrain  = 64 << 20
	drainTime = 10 * time.Second
)

// drain reads the rest of the body of a request that is refused. Otherwise the server would close the connection while the client still
// sends, and a proxy in front of the node could answer 502 in place of the refusal.
func (x *exchange) drain() {
	r := x.request
	if r.Body == nil || r.ContentLength == 0 || r.ContentLength > maxDrain || r.Header["Expect"] != nil || x.stopped() != nil {
		return // with Expect the client sends nothing before 100 Continue
	}
	_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, r.Body, maxDrain) // a failure ends the connection after the response
}
