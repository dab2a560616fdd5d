package process

import (
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wait waits until a channel is closed.
func wait(t *testing.T, done <-chan struct{}, condition string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("timeout while waiting for: ", condition)
	}
}

// eventually evaluates a condition, with exponential backoff, until it is true.
func eventually(t *testing.T, condition string, isTrue func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for pause := time.Millisecond; !isTrue(); pause = min(2*pause, 200*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-deadline:
			t.Fatal("timeout while waiting for: ", condition)
		}
	}
}

// signal sends SIGTERM to a node.
func signal(t *testing.T, n *node) {
	t.Helper()
	if err := n.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// A slowBody is the body of an upload in two parts. It closes half after the first part and then waits until rest is closed.
type slowBody struct {
	half, rest chan struct{}
	io.Reader
}

func newSlowBody(first, second string) *slowBody {
	b := &slowBody{half: make(chan struct{}), rest: make(chan struct{})}
	b.Reader = io.MultiReader(strings.NewReader(first), &gate{opened: b.rest, reached: b.half}, strings.NewReader(second))
	return b
}

// A gate is an empty reader. Its Read closes reached and returns EOF when opened is closed.
type gate struct {
	opened  <-chan struct{}
	reached chan<- struct{}
}

func (g *gate) Read([]byte) (int, error) {
	close(g.reached)
	<-g.opened
	return 0, io.EOF
}
