package sandbox

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
)

// TestAnswerAtTheEndOfACall delivers the file of an answer while the context of the call ends. A caller that gets an error must not
// leave the file open: it may be a socket that listens on a port.
func TestAnswerAtTheEndOfACall(t *testing.T) {
	const rounds = 20_000
	for i := range rounds {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan answer, 1)
		c := &Computer{calls: map[uint64]chan<- answer{1: waiting}}
		var group sync.WaitGroup
		group.Go(func() { c.deliver(event{Event: eventAnswered, Call: 1}, []*os.File{file}) })
		group.Go(cancel)
		_, err = c.await(ctx, 1, waiting)
		group.Wait()
		if closed := file.Close(); err != nil && !errors.Is(closed, os.ErrClosed) {
			t.Fatalf("round %d: the call returned %v, and the file is open", i, err)
		}
	}
}
