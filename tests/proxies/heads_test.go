package proxies

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

const (
	// maxHead and maxFields are the node's limits on the head of a request, in bytes and in fields.
	maxHead   = 64 << 10
	maxFields = 128
	// otherBytes and otherFields are at least the bytes and fields that the client and a proxy add to a head.
	otherBytes  = 2 << 10
	otherFields = 16
	// maxNames is the greatest number of names in a request for latest writers, maxPath the greatest length of a path, in bytes.
	maxNames = 500
	maxPath  = 4096
)

// overHTTP2 returns the site with a client that sends its requests over HTTP/2.
func (s *site) overHTTP2() *site {
	of := *s
	transport := s.client.Transport.(*http.Transport).Clone()
	transport.ForceAttemptHTTP2 = true
	s.Cleanup(transport.CloseIdleConnections)
	of.client = &http.Client{Transport: transport}
	answer, err := of.client.Do(of.request("GET", "/v1/user/profile", s.key, nil))
	if err != nil {
		s.Fatal(err)
	}
	answer.Body.Close()
	if answer.ProtoMajor != 2 {
		s.Fatalf("the proxy has answered over %s, want HTTP/2", answer.Proto)
	}
	return &of
}

// testLargeHeads sends requests with the largest heads that the node takes. The proxy must pass them to the node.
func (s *site) testLargeHeads() {
	s.testNames()
	s.testLongPath()

	var fields []string
	for i := range maxFields - otherFields {
		fields = append(fields, fmt.Sprintf("X-Field-%d", i), "x")
	}
	if status, body, _ := s.send("GET", "/v1/user/profile", s.key, nil, fields...); status != 200 {
		s.Errorf("GET with %d fields: status %d, want 200: %s", len(fields)/2, status, body)
	}
	value := strings.Repeat("x", maxHead-otherBytes)
	if status, body, _ := s.send("GET", "/v1/user/profile", s.key, nil, "X-Field", value); status != 200 {
		s.Errorf("GET with a field of %d bytes: status %d, want 200: %s", len(value), status, body)
	}
	// Proxies may refuse larger heads themselves, but they answer.
	if status, body, _ := s.send("GET", "/v1/user/profile", s.key, nil, "X-Field", strings.Repeat("x", maxHead+(12<<10))); status != 431 && status != 400 {
		s.Errorf("GET with a head that is too large: status %d, want 431 or 400: %s", status, body)
	}
}

// testNames asks for the latest writers of as many names as one request may have.
func (s *site) testNames() {
	for _, length := range []int{24, (maxHead-otherBytes)/maxNames - len("&path=")} {
		var query strings.Builder
		for i := range maxNames {
			fmt.Fprintf(&query, "&path=%0*d", length, i)
		}
		if status, body, _ := s.send("GET", "/v1/ws/acme/file-activity/latest-writers?dir="+query.String(), s.key, nil); status != 200 {
			s.Errorf("latest writers of %d names of %d bytes: status %d, want 200: %s", maxNames, length, status, body)
		}
	}
}

// testLongPath asks for the activity of the longest path. Each character of the path takes nine bytes in a query. The path is in the Link
// of the response too.
func (s *site) testLongPath() {
	path := strings.Repeat(strings.Repeat("議", 84)+"/", maxPath/253+1)[:maxPath-maxPath%253-1]
	query := "?path=" + url.QueryEscape(path)
	status, body, header := s.send("GET", "/v1/ws/acme/file-activity/feed"+query, s.key, nil)
	if status != 200 || len(header.Get("Link")) < len(query) {
		s.Errorf("activity of a path of %d bytes: status %d, a Link of %d bytes, want 200 and at least %d: %s",
			len(path), status, len(header.Get("Link")), len(query), body)
	}
	escaped := (&url.URL{Path: path}).EscapedPath()
	status, body, _ = s.send("MOVE", "/v1/ws/acme/drive/"+escaped, s.key, nil, "Destination", "https://"+host+"/v1/ws/acme/drive/"+escaped+"2")
	if status != 404 {
		s.Errorf("MOVE of a missing file with a long path: status %d, want 404: %s", status, body)
	}
}
