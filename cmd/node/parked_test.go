package node_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/cmd/node"
	"github.com/atelier-run/atelier/persistence"
	"github.com/atelier-run/atelier/tests/nodetest"
)

// TestOperateParkedReactions parks a stream by an event that cannot be decoded, and lists, retries and skips it by operators'
// requests.
func TestOperateParkedReactions(t *testing.T) {
	n := nodetest.Start(t, node.Start, node.Options{Dir: t.TempDir(), ReactionAttempts: 2})
	p := n.Router.Partition("usr_1")
	epoch := make(chan uint64, 1)
	n.Journal.Watch(t.Context(), func(notice persistence.Notice) {
		if notice.Partition == p {
			select {
			case epoch <- notice.Epoch:
			default:
			}
		}
	})
	appended := make(chan error, 1)
	n.Journal.Append(persistence.Proposal{Partition: p, Stream: "user/usr_1", Epoch: <-epoch, Events: []persistence.Event{
		{Name: "atelier.user.v1.ProfileChanged", Payload: []byte{0xff}},
	}}, func(r persistence.Result) { appended <- r.Err })
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	request := func(method, path, body string) (int, string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		answer := httptest.NewRecorder()
		n.Server.Admin().ServeHTTP(answer, r)
		return answer.Code, answer.Body.String()
	}
	until := func(want string) string {
		for t.Context().Err() == nil {
			status, body := request(http.MethodGet, "/admin/reactions", "")
			if status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			if strings.Contains(body, want) {
				return body
			}
		}
		return ""
	}
	listed := until(`"stream":"user/usr_1"`)
	for _, want := range []string{`"version":1`, `"event":"atelier.user.v1.ProfileChanged"`, `"attempts":2`, `"error":"`, `"since":`, `"partition":`} {
		if !strings.Contains(listed, want) {
			t.Errorf("%s is not in %s", want, listed)
		}
	}
	if status, body := request(http.MethodPost, "/admin/reactions/retry", `{}`); status != http.StatusOK || !strings.Contains(body, `["user/usr_1"]`) {
		t.Errorf("retry: %d %s", status, body)
	}
	if status, body := request(http.MethodPost, "/admin/reactions/skip", `{}`); status != http.StatusBadRequest {
		t.Errorf("skip of no stream: %d %s", status, body)
	}
	for t.Context().Err() == nil { // it cannot be skipped while it is retried
		if status, _ := request(http.MethodPost, "/admin/reactions/skip", `{"stream":"user/usr_1"}`); status == http.StatusOK {
			break
		}
	}
	until(`"items":[]`)
	if status, body := request(http.MethodPost, "/admin/reactions/skip", `{"stream":"user/usr_1"}`); status != http.StatusNotFound {
		t.Errorf("skip of a stream that is not parked: %d %s", status, body)
	}
}
