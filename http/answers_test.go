package http_test

import (
	"context"
	"fmt"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/http"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// A slowReader is a client that reads nothing until released is closed. began has an element once the answer has begun.
type slowReader struct {
	*httptest.ResponseRecorder
	began    chan<- int
	released <-chan struct{}
}

func (s *slowReader) Write(b []byte) (int, error) {
	select {
	case s.began <- s.Code:
	default: // a further part of the answer
	}
	<-s.released
	return s.ResponseRecorder.Write(b)
}

// Answers that clients read slowly are admitted against the memory of bodies, and leave room for the answers of other people. Once they
// have been read, the memory is free.
func TestMemoryOfAnswers(t *testing.T) {
	const memory, size = 16 << 20, 300 << 10
	w := newFakeEntities()
	w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		switch m := c.Message.(type) {
		case *activityv1.ReadFeed:
			if m.GetLimit() == 100 {
				return &activityv1.Page{Items: []byte(`"` + strings.Repeat("x", size) + `"`)}, nil
			}
			return &activityv1.Page{}, nil
		case *wirev1.ReadTimeline:
			return &wirev1.Timeline{}, nil
		}
		return nil, nil
	}
	s := w.server(t, func(o *http.Options) { o.Limits.BodyMemory = memory })
	key, released, done := w.key(alice), make(chan struct{}), make(chan struct{}, 100)
	begin := func(target string) int {
		r := httptest.NewRequest("GET", target, nil)
		r.Header.Set("Authorization", "Bearer "+key)
		began := make(chan int, 1)
		go func() {
			s.ServeHTTP(&slowReader{httptest.NewRecorder(), began, released}, r)
			done <- struct{}{}
		}()
		return <-began
	}
	const feed = "/v1/ws/acme/file-activity/feed?limit=100"
	accepted, status := 0, 0
	for ; accepted < 100; accepted++ {
		if status = begin(feed); status != nethttp.StatusOK {
			break
		}
	}
	if accepted < 11 || accepted > 15 || status != nethttp.StatusTooManyRequests {
		t.Errorf("%d answers are in progress, and the next is %d", accepted, status)
	}
	refused := request(t, s, "GET", feed, key, "")
	expect(t, refused, 429, "bodies and answers")
	if refused.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	// What can be large is refused before it is read.
	expect(t, request(t, s, "GET", "/v1/ws/acme/agent/sessions/ses_01j0000000000000000000000a/history?limit=100", key, ""), 429, "bodies and answers")
	if n := w.count(&wirev1.ReadTimeline{}); n != 0 {
		t.Errorf("%d timelines were read", n)
	}
	expect(t, request(t, s, "GET", "/v1/ws/acme/file-activity/feed?limit=1", key, ""), 200, "items")
	close(released)
	for range accepted + 1 {
		<-done
	}
	if text := request(t, s, "GET", "/metrics", "", "").Body.String(); !strings.Contains(text, `atelier_limit_used_slots{kind="body_bytes"} 0`) {
		t.Error("memory of answers is still taken")
	}
}

// TestStartsWithoutMemoryForTheAnswer starts sessions while there is no memory for their history: the refused requests start none, and a
// request that is repeated with memory does.
func TestStartsWithoutMemoryForTheAnswer(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	parent := sc.startedAs("owner", `{"prompt":"Hello"}`)
	restart := func(memory int) {
		b.stage.stop()
		b.stage.bodyMemory = memory
		b.stage.start()
	}
	sessions := func() int {
		var page struct{ Items []struct{} }
		b.stage.decode(sc.drive("GET", sessionsIn, "owner", ""), 200, &page)
		return len(page.Items)
	}
	paths := []string{sessionsIn, sessionsIn + "/" + parent + "/sessions"}
	send := func(status, i int) {
		body := fmt.Sprintf(`{"prompt":"Hello","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c0%d"}`, i)
		if got := sc.drive("POST", paths[i], "owner", body); got.Code != status {
			t.Errorf("POST %s: %d %s, want %d", paths[i], got.Code, got.Body, status)
		}
	}
	restart(1)
	for i := range paths {
		send(503, i)
	}
	if n := sessions(); n != 1 {
		t.Errorf("there are %d sessions after refused starts, want the parent alone", n)
	}
	restart(0)
	for i := range paths {
		send(201, i)
	}
	if n := sessions(); n != 3 {
		t.Errorf("there are %d sessions, want 3", n)
	}
}

// TestMemoryOfSmallAnswers expects that a read admits memory for the rows that it asks for, and not for the most that it could ask for.
func TestMemoryOfSmallAnswers(t *testing.T) {
	w, clock := newFakeEntities(), newClock()
	w.before = func(_ context.Context, c entity.Command) (proto.Message, error) {
		switch m := c.Message.(type) {
		case *wirev1.ReadTimeline:
			return &wirev1.Timeline{}, nil
		case *wirev1.List:
			if m.GetName() == computer.Telemetry {
				return &wirev1.Page{}, nil
			}
		}
		return nil, nil
	}
	s := w.server(t, func(o *http.Options) { o.Clock, o.Limits.BodyMemory = clock.Now, 300<<10 })
	key, now := w.key(alice), clock.Now()
	since := func(age time.Duration) string {
		return fmt.Sprintf("/telemetry?sinceAt=%d", now.Add(-age).UnixMilli())
	}
	const history = "/agent/sessions/ses_01j0000000000000000000000a/history"
	for path, status := range map[string]int{
		history + "?limit=1": 200, history + "?limit=20": 200, history + "?limit=100": 503,
		since(-time.Hour): 200, since(time.Hour): 200, since(24 * time.Hour): 503, since(1000 * time.Hour): 503, "/telemetry": 503,
	} {
		if got := request(t, s, "GET", "/v1/ws/acme"+path, key, ""); got.Code != status {
			t.Errorf("%s: %d %s, want %d", path, got.Code, got.Body, status)
		}
	}
}
