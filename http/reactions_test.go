package http_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
	journalv1 "github.com/atelier-run/atelier/messages/journal/v1"
)

// fakeReactions has two parked streams. The first one is resumed by somebody else after it was listed.
type fakeReactions struct{ resumed []string }

func (*fakeReactions) ParkedReactions(context.Context) ([]*journalv1.Parked, error) {
	return []*journalv1.Parked{{Stream: "workspace/ws_1"}, {Stream: "workspace/ws_2"}}, nil
}

func (f *fakeReactions) ResumeReactions(_ context.Context, stream string, _ bool) error {
	if stream == "workspace/ws_1" {
		return server.ErrNotFound
	}
	f.resumed = append(f.resumed, stream)
	return nil
}

// TestRetryAllReactions: a stream that is no longer parked does not keep the others from being resumed.
func TestRetryAllReactions(t *testing.T) {
	w, f := newFakeEntities(), &fakeReactions{}
	s := w.server(t, func(o *http.Options) { o.Reactions = f })
	answer := request(t, s.Admin(), "POST", "/admin/reactions/retry", "", `{}`)
	if answer.Code != 200 || !slices.Equal(f.resumed, []string{"workspace/ws_2"}) || strings.TrimSpace(answer.Body.String()) != `{"streams":["workspace/ws_2"]}` {
		t.Errorf("%d %s, resumed %v", answer.Code, answer.Body, f.resumed)
	}
	if answer := request(t, s.Admin(), "POST", "/admin/reactions/retry", "", `{"stream":"workspace/ws_1"}`); answer.Code != 404 {
		t.Errorf("a stream that is not parked: %d %s", answer.Code, answer.Body)
	}
}
