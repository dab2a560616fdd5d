package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
)

// maxLine is the maximum length of a line or body that a meter decodes. Longer ones are passed on and counted by the estimate.
const maxLine = 4 << 20

// A meter passes on the body of a model's reply and counts the tokens that it reports.
type meter struct {
	body     io.ReadCloser
	wire     Wire
	isStream bool
	// request is the length of the request, for the estimate.
	request int
	add     func(input, output int64)

	once sync.Once
	// line is the current line of a stream, or the body. It is nil and isLong true if it is too long.
	line   []byte
	isLong bool
	// events counts the events of a stream; an event has about one token. length counts the bytes of the reply.
	events, length int64
	// counted are the tokens passed to add.
	counted tokens
	isKnown bool
	// isWhole is set after the report at the end of a stream of Anthropic's, which has the whole output.
	isWhole bool
}

type tokens struct{ input, output int64 }

// Read implements io.Reader.
func (m *meter) Read(p []byte) (int, error) {
	n, err := m.body.Read(p)
	m.length += int64(n)
	m.scan(p[:n])
	if err != nil {
		m.once.Do(m.finish)
	}
	return n, err
}

// Close implements io.Closer.
func (m *meter) Close() error {
	m.once.Do(m.finish)
	return m.body.Close()
}

func (m *meter) scan(p []byte) {
	for len(p) > 0 {
		part, isEnd := p, false
		if i := bytes.IndexByte(p, '\n'); m.isStream && i >= 0 {
			part, isEnd = p[:i], true
			p = p[i+1:]
		} else {
			p = nil
		}
		if m.isLong = m.isLong || len(m.line)+len(part) > maxLine; m.isLong {
			m.line = nil
		} else {
			m.line = append(m.line, part...)
		}
		if isEnd {
			m.endLine()
		}
	}
}

// endLine decodes a line of a stream.
func (m *meter) endLine() {
	data, ok := bytes.CutPrefix(m.line, []byte("data:"))
	if ok {
		m.events++
	}
	if ok && bytes.Contains(data, []byte(`"usage"`)) {
		m.decode(data)
	}
	m.line, m.isLong = m.line[:0], false
}

// report has the places of the usage in the replies and events of all wire formats.
type report struct {
	Usage    *usage `json:"usage"`
	Response *struct {
		Usage *usage `json:"usage"`
	} `json:"response"`
	Message *struct {
		Usage *usage `json:"usage"`
	} `json:"message"`
}

type usage struct {
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	Input         int64 `json:"input_tokens"`
	Output        int64 `json:"output_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
}

// decode counts the usage of a reply or an event. Reports of one reply are totals.
func (m *meter) decode(data []byte) {
	var r report
	if json.Unmarshal(data, &r) != nil {
		return
	}
	found := r.Usage
	switch {
	case m.wire == Responses && r.Response != nil && r.Response.Usage != nil:
		found = r.Response.Usage
	case m.wire == Anthropic && r.Message != nil && r.Message.Usage != nil:
		found = r.Message.Usage
	}
	if found == nil {
		return
	}
	m.isKnown, m.isWhole = true, m.isWhole || found == r.Usage
	m.count(tokens{
		input:  max(found.Prompt, found.Input+found.CacheCreation+found.CacheRead),
		output: max(found.Completion, found.Output),
	})
}

// count raises the counted tokens to a total.
func (m *meter) count(total tokens) {
	total.input, total.output = max(total.input, m.counted.input), max(total.output, m.counted.output)
	if total != m.counted {
		m.add(total.input-m.counted.input, total.output-m.counted.output)
		m.counted = total
	}
}

// finish counts the rest when the reply ends. A reply that was cut off before its report is estimated: an event of a stream
// has about one token, four bytes are about one token.
func (m *meter) finish() {
	switch {
	case m.isStream:
		m.endLine()
	case !m.isLong:
		m.decode(m.line)
	}
	m.line = nil
	switch {
	case !m.isKnown && m.isStream:
		m.count(tokens{input: int64(m.request) / 4, output: m.events})
	case !m.isKnown:
		m.count(tokens{input: int64(m.request) / 4, output: m.length / 4})
	case m.wire == Anthropic && m.isStream && !m.isWhole:
		// The first event has the input and a few tokens of output, and a later one that is missing has the output.
		m.count(tokens{input: m.counted.input, output: m.events})
	}
}
