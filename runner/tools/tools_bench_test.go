package tools_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/runner/tools"
)

// BenchmarkServeTools measures a request without the work of its tool.
func BenchmarkServeTools(b *testing.B) {
	served, err := tools.New(tools.Options{Asker: &world{}, Folders: &world{}, Agents: &world{}, Clock: func() time.Time { return now }, Files: newFiles()})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/mcp",
			strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_files","arguments":{}}}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		w := httptest.NewRecorder()
		served.ServeTools(w, r, person)
		if w.Code != http.StatusOK {
			b.Fatal(w.Code, w.Body)
		}
	}
}
