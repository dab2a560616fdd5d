package http

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
)

// response is the answer under way, and what its end is measured and logged by.
type response struct {
	http.ResponseWriter
	id      string
	started time.Time
	route   *operation
	caller  *credential
	// workspace is set where the path names one that exists.
	workspace *workspace
	status    int
	bytes     int64
	failed    error
	// pace, where set, extends the connection's write deadline before each write; its error ends the answer.
	pace func() error
}

// Unwrap lets http.ResponseController reach the connection.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (total int, err error) {
	for {
		if err := w.begin(); err != nil {
			return total, err
		}
		n, err := w.ResponseWriter.Write(b[:min(len(b), piece)])
		total, w.bytes = total+n, w.bytes+int64(n)
		if b = b[n:]; err != nil || len(b) == 0 {
			return total, err
		}
	}
}

func (w *response) begin() error {
	if w.pace != nil {
		if err := w.pace(); err != nil {
			return err
		}
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return nil
}

// piece bounds what is written between two looks at the write deadline: the slowest client that is waited for takes one
// in Limits.StallTime.
const piece = 256 << 10

// ReadFrom keeps the kernel's file-to-socket copy within reach.
func (w *response) ReadFrom(src io.Reader) (int64, error) {
	to, ok := w.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	var total int64
	limited, _ := src.(*io.LimitedReader)
	for {
		if err := w.begin(); err != nil {
			return total, err
		}
		part := &io.LimitedReader{R: src, N: piece}
		if limited != nil { // a limit inside a limit would hide the file
			part = &io.LimitedReader{R: limited.R, N: min(limited.N, piece)}
		}
		want := part.N
		n, err := to.ReadFrom(part)
		total, w.bytes = total+n, w.bytes+n
		if limited != nil {
			limited.N -= n
		}
		if err != nil || n < want || n == 0 {
			return total, err
		}
	}
}

func (w *response) Flush() {
	if w.begin() != nil {
		return
	}
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Hijack is refused: a connection that left the server would leave its limits.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// verbatim is an answer that is JSON already, in pieces.
type verbatim [][]byte

func (w *response) json(status int, answer any) {
	parts, ok := answer.(verbatim)
	if !ok {
		body, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		parts = verbatim{body}
	}
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	header["X-Content-Type-Options"] = noSniff
	header["Content-Length"] = []string{strconv.Itoa(size)}
	w.WriteHeader(status)
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return
		}
	}
}

var (
	jsonType = []string{"application/json"}
	noStore  = []string{"no-store"}
	noSniff  = []string{"nosniff"}
)
