package runner

import (
	"strings"
	"sync"
)

// tail has the last maxTail bytes that were written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const maxTail = 8 << 10

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(len(p)-maxTail, 0):]...)
	t.text = append(t.text[:0], t.text[max(len(t.text)-maxTail, 0):]...)
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.text), "")
}
