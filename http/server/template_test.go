package server

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/mux"
	"pgregory.net/rapid"
)

// TestTemplates compares templates with mux's own matching of the same paths, which uses regular expressions.
func TestTemplates(t *testing.T) {
	templates := []string{
		"/", "/healthz", "/v1/ws/{workspaceSlug}", DrivePath, DrivePath + "/{path}", WorkspacePath + "/agent/sessions/{id}/send",
		"/v1/uploads/{token}", WorkspacePath + "/{a}/{b}",
	}
	segments := rapid.SampledFrom([]string{
		"", "v1", "ws", "drive", "agent", "sessions", "send", "uploads", "healthz", "demo", "a%2Fb", "%77s", "a%20b", "ü", "%C3%BC", "%25", "..", "+",
	})
	rapid.Check(t, func(t *rapid.T) {
		path := rapid.SampledFrom(templates).Draw(t, "template")
		request := strings.Split(path, "/")
		for i := 1; i < len(request); i++ {
			if strings.HasPrefix(request[i], "{") || rapid.IntRange(0, 9).Draw(t, "other") == 0 {
				request[i] = segments.Draw(t, "segment")
			}
		}
		request = append(request, rapid.SliceOfN(segments, 0, 2).Draw(t, "rest")...)
		u, err := url.ParseRequestURI("/" + strings.TrimPrefix(strings.Join(request, "/"), "/"))
		if err != nil {
			return // net/http refuses the path
		}
		r := &http.Request{Method: http.MethodGet, URL: u}
		var got, want mux.RouteMatch
		isMatch := parseTemplate(path).match(r, &got)
		pattern := strings.Replace(path, "/drive/{path}", "/drive/{path:.*}", 1)
		if mux.NewRouter().UseEncodedPath().NewRoute().Path(pattern).Match(r, &want) != isMatch {
			t.Fatalf("%s matches %s: %v", path, u, isMatch)
		}
		if isMatch && !maps.Equal(got.Vars, want.Vars) {
			t.Fatalf("%s has the variables %v in %s, want %v", path, got.Vars, u, want.Vars)
		}
	})
}
