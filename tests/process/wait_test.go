package process

import (
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

func wait(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("this does not come: ", what)
	}
}

// eventually asks again, with growing pauses, until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	given := time.After(patience)
	for pause := time.Millisecond; !so(); pause = min(2*pause, 200*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-given:
			t.Fatal("this does not come: ", what)
		}
	}
}

func signal(t *testing.T, n *node) {
	t.Helper()
	if err := n.command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

// slowBody is an upload whose second part waits.
type slowBody struct {
	half, rest chan struct{}
	io.Reader
}

func newSlowBody(first, second string) *slowBody {
	b := &slowBody{half: make(chan struct{}), rest: make(chan struct{})}
	b.Reader = io.MultiReader(strings.NewReader(first), &gate{opened: b.rest, reached: b.half}, strings.NewReader(second))
	return b
}

// gate gives nothing, and not before it is opened.
type gate struct {
	opened  <-chan struct{}
	reached chan<- struct{}
}

func (g *gate) Read([]byte) (int, error) {
	close(g.reached)
	<-g.opened
	return 0, io.EOF
}
