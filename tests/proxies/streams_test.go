package proxies

import (
	"bufio"
	"crypto/rand"
	"strings"

	"github.com/atelier-run/atelier/client"
)

// testEventStream writes files, and expects their rows in the stream of file activity.
func (s *site) testEventStream() {
	s.expectEvents("/v1/ws/acme/file-activity/events", func(text string) {
		if status, body, _ := s.send("PUT", "/v1/ws/acme/drive/"+text, s.key, strings.NewReader("x")); status != 201 {
			s.Errorf("PUT: status %d, want 201: %s", status, body)
		}
	})
}

// testSessionStream sends messages to a session, and expects their rows in the stream of the session.
func (s *site) testSessionStream() {
	started, err := s.api().StartSession(s.Context(), "acme", client.NewSession{Prompt: "Hello"})
	if err != nil {
		s.Fatal(err)
	}
	s.expectEvents("/v1/ws/acme/agent/sessions/"+started.SessionID+"/events", func(text string) {
		if _, err := s.api().SendMessage(s.Context(), "acme", started.SessionID, client.SessionMessage{Text: text}); err != nil {
			s.Error(err)
		}
	})
}

// expectEvents opens an event stream and makes changes. Each change has an event with its text. The next change is made when this event has
// arrived: the proxy must hold no event back until further ones come.
func (s *site) expectEvents(path string, change func(text string)) {
	s.Helper()
	answer, err := s.client.Do(s.request("GET", path, s.key, nil))
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != 200 {
		s.Fatalf("GET of the event stream: status %s, want 200", answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	for range 3 {
		text := rand.Text()
		change(text)
		for !strings.HasPrefix(lines.Text(), "data:") || !strings.Contains(lines.Text(), text) {
			if !lines.Scan() {
				s.Fatalf("the stream ended before it sent the event with %s: %v", text, lines.Err())
			}
		}
	}
}

// testCompression verifies that the proxy compresses a response, and that it holds back no part of a response that is written in parts, for
// a client that accepts compressed responses, as the client of net/http does.
func (s *site) testCompression() {
	_, _, header := s.send("GET", "/v1/openapi.json", "", nil, "Accept-Encoding", "gzip")
	if header.Get("Content-Encoding") != "gzip" {
		s.Errorf("the proxy does not compress: the header is %v", header)
	}
	s.testEventStream()
	s.testSessionStream()
	s.testCommand()
}
