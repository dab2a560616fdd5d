package oauth

import (
	"io"
	"net/http"
	"testing"
)

// TestStreamsEnd verifies that an open stream ends when the family of its token is revoked.
func TestStreamsEnd(t *testing.T) {
	w := newWorld(t)
	alice := w.person("alice")
	w.workspace(alice, "acme")
	client := w.register(callback)
	first := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	second := w.exchange(refreshing(client, first.refresh))
	r, err := http.NewRequestWithContext(t.Context(), "GET", w.url+"/v1/ws/acme/file-activity/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+second.access)
	stream, err := w.agent.Do(r)
	if err != nil || stream.StatusCode != 200 {
		t.Fatal(stream, err)
	}
	defer stream.Body.Close()
	w.refused(refreshing(client, first.refresh), 400, "invalid_grant")
	if _, err := io.Copy(io.Discard, stream.Body); err != nil { // which would not end otherwise
		t.Error(err)
	}
}
