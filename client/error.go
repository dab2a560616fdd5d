package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// Error is what a server refuses a request with.
type Error struct {
	Status int
	// Code is the API's, as "slug_taken"; empty where something else than the API answered.
	Code string
	// Message is for people.
	Message string
	// RequestID names the request in the server's log.
	RequestID string
	// RetryAfter is when trying again may help; 0: at once, or never, as Status has it.
	RetryAfter time.Duration

	// again tells that the server asked for another attempt.
	again bool
}

func (e *Error) Error() string {
	switch {
	case e.Code == "":
		return fmt.Sprintf("the server answered %d %s", e.Status, http.StatusText(e.Status))
	case e.Message == "":
		return fmt.Sprintf("the server answered %d %s", e.Status, e.Code)
	}
	return fmt.Sprintf("%s (%s)", e.Message, e.Code)
}

// HasCode tells whether an error is a refusal with one of the API's codes.
func HasCode(err error, code string) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code == code
}

const (
	// longestAnswer bounds what is read of a JSON answer, longestError of one that is an error.
	longestAnswer = 16 << 20
	longestError  = 64 << 10
)

// refusal reads an answer that is none of success, and closes it.
func refusal(r *http.Response) *Error {
	defer r.Body.Close()
	refused := &Error{Status: r.StatusCode, RequestID: r.Header.Get("X-Request-Id")}
	var body struct{ Error, Message string }
	text, _ := io.ReadAll(io.LimitReader(r.Body, longestError))
	if json.Unmarshal(text, &body) == nil {
		refused.Code, refused.Message = body.Error, body.Message
	}
	if after, ok := retryAfter(r.Header.Get("Retry-After")); ok {
		refused.RetryAfter = after
		refused.again = r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable
	}
	return refused
}

// retryAfter reads seconds or a date (RFC 9110, section 10.2.3).
func retryAfter(text string) (time.Duration, bool) {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(text)
	return max(0, time.Until(at)), err == nil
}
