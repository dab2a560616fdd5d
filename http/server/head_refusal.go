package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/atelier-run/atelier/answer"
	"github.com/atelier-run/atelier/entity"
)

// A headRefusal is the answer to a request that no handler sees, because its head is not valid or exceeds its bounds. The connection
// ends after it.
type headRefusal struct {
	status  int
	code    entity.Code
	message string
}

var (
	tooManyFields = &headRefusal{http.StatusRequestHeaderFieldsTooLarge, entity.InvalidRequest, "the head of the request is too large"}
	tooManyHeads  = &headRefusal{http.StatusServiceUnavailable, entity.Unavailable, "the server is busy"}
	// A proxy in front of the server may take one length for the length of the body, and the server the other length, so that a part of the
	// body becomes a request of its own (RFC 9112, section 6.1).
	twoLengths = &headRefusal{http.StatusBadRequest, entity.InvalidRequest, "the request has both Content-Length and Transfer-Encoding"}
)

// headMessages are the messages for the refusals of net/http, by their status.
var headMessages = map[int]string{
	http.StatusRequestHeaderFieldsTooLarge: tooManyFields.message,
	http.StatusExpectationFailed:           "the server does not support what the request expects",
	http.StatusNotImplemented:              "the server does not support the transfer encoding of the request",
	http.StatusHTTPVersionNotSupported:     "the server does not support the version of HTTP of the request",
}

// statusLine is the beginning of each refusal that net/http writes.
const statusLine = "HTTP/1.1 "

// parseHeadRefusal returns the refusal that net/http has written as plain text. It returns nil for anything else.
func parseHeadRefusal(written []byte) *headRefusal {
	rest, ok := bytes.CutPrefix(written, []byte(statusLine))
	if !ok || len(rest) < 3 {
		return nil
	}
	status, err := strconv.Atoi(string(rest[:3]))
	if err != nil || status < http.StatusBadRequest || http.StatusText(status) == "" {
		return nil
	}
	message := headMessages[status]
	if message == "" {
		message = "the server cannot read the request"
	}
	return &headRefusal{status, entity.InvalidRequest, message}
}

// encodeHeadRefusal returns a refusal in the form of all errors, with a request id, and logs it.
func (s *Server) encodeHeadRefusal(r *headRefusal, client string) []byte {
	id := s.options.NewID("req_")
	body, _ := json.Marshal(answer.Body{Error: r.code, Message: r.message}) // cannot fail: it has texts only
	var text strings.Builder
	fmt.Fprintf(&text, statusLine+"%d %s\r\n", r.status, http.StatusText(r.status))
	text.WriteString("Content-Type: application/json\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n")
	if r.status == http.StatusServiceUnavailable {
		text.WriteString("Retry-After: 1\r\n")
	}
	fmt.Fprintf(&text, "X-Request-Id: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", id, len(body), body)
	s.metrics.unrouted.observe(r.status, 0)
	s.log.Info("request refused before it was read", slog.Int("status", r.status), slog.String("reason", r.message),
		slog.String("request", id), slog.String("peer", client))
	return []byte(text.String())
}
