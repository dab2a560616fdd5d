package server

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/limit"
)

const (
	// The memory of a body or answer of at most freeBody bytes is not counted: the slots of requests bound the sum.
	freeBody = 16 << 10
	// bodyCost is the memory that a body or answer takes, as a multiple of its size: a body is read, decoded, and encoded into a command, and
	// an answer is a reply that is decoded and encoded.
	bodyCost = 3
)

// ReadBody reads a body of at most a number of bytes into memory. The memory is admitted first, as a part of Limits.BodyMemory that
// the caller, or the client's address, holds until the request ends. Errors: payload_too_large, invalid_request if the body ends early;
// rate_limited and unavailable if bodies of the holder, or of all, take the memory.
func (c *Call) ReadBody(most int64) ([]byte, error) {
	tooLarge := entity.Errorf(entity.PayloadTooLarge, "the body is larger than %d bytes", most)
	size := c.Request.ContentLength
	if size > most {
		return nil, tooLarge
	}
	if err := c.reserveMemory(size); err != nil {
		return nil, err
	}
	body := http.MaxBytesReader(c.Response, c.Request.Body, most)
	text := make([]byte, 0, max(size, 0)+bytes.MinRead)
	for {
		if len(text) == cap(text) {
			larger := 2 * int64(cap(text))
			if err := c.reserveMemory(min(larger, most)); err != nil {
				return nil, err
			}
			text = slices.Grow(text, int(larger)-len(text))
		}
		n, err := body.Read(text[len(text):cap(text)])
		text = text[:len(text)+n]
		if err == io.EOF {
			return text, nil
		}
		if err != nil {
			if _, isTooLarge := errors.AsType[*http.MaxBytesError](err); isTooLarge {
				return nil, tooLarge
			}
			return nil, Invalid("the body could not be read")
		}
	}
}

// HasForm reports whether the body of the request is a form by its media type.
func (c *Call) HasForm() bool {
	media, _, err := mime.ParseMediaType(c.Request.Header.Get("Content-Type"))
	return err == nil && media == "application/x-www-form-urlencoded"
}

// ReadForm reads the body of the request, a form of at most a number of bytes. Errors: the errors of ReadBody, and invalid_request.
func (c *Call) ReadForm(most int64) (url.Values, error) {
	body, err := c.ReadBody(most)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, Invalid("the form cannot be read")
	}
	return form, nil
}

// ReserveAnswer admits the memory for an answer of a number of bytes, as ReadBody does for a body. An operation calls it before it asks for
// data that can be large, and Answer for the encoded output. Errors: rate_limited, unavailable.
func (c *Call) ReserveAnswer(size int) error { return c.reserveMemory(int64(size)) }

// reserveMemory admits the memory for a body or answer of a number of bytes. A part may be admitted already. Errors: rate_limited,
// unavailable.
func (c *Call) reserveMemory(size int64) error {
	reserved := &c.Response.reserved
	more := int(size*bodyCost) - reserved.bytes
	if size <= freeBody || more <= 0 {
		return nil
	}
	if reserved.bytes == 0 {
		if c.Caller != nil {
			reserved.holder = holderOf(c.Caller)
		} else {
			reserved.holder = holder{network: limit.Network(c.Address())}
		}
	}
	if err := c.server.slots.bodies.AcquireMany(reserved.holder, more); err != nil {
		return refusedSlot(err, reserved.holder, "the bodies and answers of requests %s that are in progress are too large together")
	}
	reserved.bytes += more
	return nil
}

// A bodyReservation is the memory that is admitted for the body and the answer of a request.
type bodyReservation struct {
	holder holder
	bytes  int
}

// releaseBody frees the memory of a request's body and answer, once.
func (s *Server) releaseBody(w *Response) {
	if w.reserved.bytes > 0 {
		s.slots.bodies.ReleaseMany(w.reserved.holder, w.reserved.bytes)
		w.reserved.bytes = 0
	}
}
