package edge_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// TestResponseTimeouts gives an app times of its own in which it must begin its responses. Each request has the time that holds when it
// begins, and its refusal names the setting.
func TestResponseTimeouts(t *testing.T) {
	s := newStage(t, func(o *edge.Options) { o.Limits.HeaderTime = 50 * time.Millisecond })
	begun, released := make(chan struct{}), make(chan struct{})
	id := s.register("notes", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			begun <- struct{}{}
			<-released
			hello(w, r)
			return
		}
		<-r.Context().Done()
	})
	s.publish(id)
	set := func(own time.Duration) {
		s.askAs(s.alice, entity.KindApp, app.Identity(s.workspaceID, id), &appv1.SetRuntimeSettings{
			Settings: &appv1.RuntimeSettings{ResponseTimeoutMs: own.Milliseconds()},
		})
		s.advance(2 * time.Second)
	}
	set(time.Hour)
	held := make(chan int)
	request := s.request("GET", "/held", "")
	go func() {
		response, err := http.DefaultTransport.RoundTrip(request)
		if err != nil {
			t.Error(err)
			close(held)
			return
		}
		response.Body.Close()
		held <- response.StatusCode
	}()
	<-begun
	for own, want := range map[time.Duration]string{
		time.Second: "within 1s, which is the setting responseTimeoutSeconds of its runtime (atelier app runtime)",
		0:           "within 50ms, which is the setting app-response of the server; the app may have its own (atelier app runtime)",
	} {
		set(own)
		response, body := s.get("/slow")
		s.expect(response, body, 504, want)
		response, body = s.get("/slow", document...)
		if response.StatusCode != 504 || !strings.Contains(body, want) {
			t.Errorf("the page: %d %s, want %q", response.StatusCode, body, want)
		}
	}
	close(released)
	if status := <-held; status != 200 {
		t.Errorf("the request that began with an hour: %d", status)
	}
}
