package model

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// events reads server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) with bounded memory.
type events struct {
	lines *bufio.Scanner
	body  *io.LimitedReader
}

var errTooLarge = errors.New("the model server has sent a reply that is too large")

func newEvents(body io.Reader) *events {
	limited := &io.LimitedReader{R: body, N: maxStream}
	lines := bufio.NewScanner(limited)
	lines.Buffer(make([]byte, 0, 4096), maxLine)
	return &events{lines, limited}
}

// next returns the name and the data of the next event. It returns io.EOF at the end, also if an event is not complete.
func (e *events) next() (name string, data []byte, err error) {
	hasData := false
	for e.lines.Scan() {
		line := e.lines.Bytes()
		if len(line) == 0 {
			if hasData {
				return name, data, nil
			}
			name = ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if hasData {
				data = append(data, '\n')
			}
			if data, hasData = append(data, value...), true; len(data) > maxLine {
				return "", nil, errTooLarge
			}
		}
	}
	switch err := e.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong) || e.body.N == 0:
		return "", nil, errTooLarge
	case err != nil:
		return "", nil, err
	}
	return "", nil, io.EOF
}
