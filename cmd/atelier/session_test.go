package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestInterruptedRequests interrupts commands while the server works on their first request.
func TestInterruptedRequests(t *testing.T) {
	t.Setenv(keyVariable, "atl_key")
	for want, target := range map[string]func(serverFlags) command{
		"the session may have started. To see it: atelier session list demo": func(f serverFlags) command {
			return &sessionStartCommand{serverFlags: f, Workspace: "demo", Prompt: "say hello"}
		},
		"the session goes on. To see how: atelier session tail demo ses_1": func(f serverFlags) command {
			return &sessionTailCommand{sessionFlags: sessionFlags{f, "demo", "ses_1"}}
		},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			interrupt()
			<-ctx.Done()
		}))
		var out, errs bytes.Buffer
		code := report(console{&out, &errs}, target(serverFlags{URL: server.URL}).Run(ctx, console{&out, &errs}), exitFailure)
		server.Close()
		if code != exitInterrupted || !strings.Contains(errs.String(), want) {
			t.Errorf("status %d, %s", code, errs.String())
		}
	}
}
