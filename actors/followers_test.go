package actors_test

import (
	"context"
	"runtime"
	"testing"
	"weak"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// A client is memory of the size that a stream holds for its client.
type client struct{ received [64]byte }

func (c *client) send(frames []byte) error {
	copy(c.received[:], frames)
	return nil
}

// TestEndedStreamsAreForgotten verifies that a workspace without changes forgets streams that have ended, and still authorizes
// the others.
func TestEndedStreamsAreForgotten(t *testing.T) {
	const ended = 300
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	b.admitted("ws_1", "usr_2")
	subscribe := func(userID string) (func(context.Context) error, weak.Pointer[client]) {
		c := &client{}
		follow, err := b.router.Subscribe(t.Context(), activity.Subscription{WorkspaceID: "ws_1", Principal: person(userID), Send: c.send})
		if err != nil {
			t.Fatal(err)
		}
		return follow, weak.Make(c)
	}
	stays, _ := subscribe("usr_1")
	loses, _ := subscribe("usr_2")
	outcomes := make(chan error, 2)
	live, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	go func() { outcomes <- loses(live) }()
	var clients []weak.Pointer[client]
	left, cancel := context.WithCancel(t.Context())
	cancel()
	for range ended {
		follow, c := subscribe("usr_1")
		if err := follow(left); err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	b.eventually(func() bool {
		runtime.GC()
		remembered := 0
		for _, c := range clients {
			if c.Value() != nil {
				remembered++
			}
		}
		return remembered <= 64
	})
	b.mustAsk(remove("usr_2"))
	if err := <-outcomes; code(err) != entity.NotFound {
		t.Errorf("the stream of the removed member ends with %v", err)
	}
	go func() { outcomes <- stays(live) }()
	stop()
	if err := <-outcomes; err != nil {
		t.Errorf("the owner's stream ends with %v", err)
	}
}

// TestStreamOutlivesRefusedRemoval verifies that a removal that the journal refused does not stop the member's stream.
func TestStreamOutlivesRefusedRemoval(t *testing.T) {
	b := newBench(t)
	b.createWorkspace("ws_1", "usr_1")
	b.admitted("ws_1", "usr_2")
	received, ended := make(chan struct{}, 1), make(chan error, 1)
	follow, err := b.router.Subscribe(t.Context(), activity.Subscription{
		WorkspaceID: "ws_1", Principal: person("usr_2"), Send: func([]byte) error { received <- struct{}{}; return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	live, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	go func() { ended <- follow(live) }()
	b.faults.failing(refuseOnce("workspace/ws_1"))
	if _, err := b.ask(remove("usr_2")); err == nil {
		t.Fatal("a removal that the journal refused is acknowledged")
	}
	b.mustAsk(record("ws_1", operation(activityv1.Kind_KIND_WRITE, "a")))
	select {
	case <-received:
	case err := <-ended:
		t.Fatalf("the stream ends with %v", err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the stream ends with %v", err)
	}
}
