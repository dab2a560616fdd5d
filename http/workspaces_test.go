package http_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// TestWorkspaceLimit creates many workspaces concurrently: as many succeed as the limit allows. A creation that is refused
// for another reason, and a deletion, make room for the next.
func TestWorkspaceLimit(t *testing.T) {
	b := newBoundary(t)
	b.stage.stop()
	b.stage.workspaces = 3
	b.stage.start()
	create := func(as, slug string) *httptest.ResponseRecorder {
		return request(t, b.stage.node.Server, "POST", "/v1/workspaces", b.people[as].key, fmt.Sprintf(`{"slug":%q,"name":"Space"}`, slug))
	}
	expect(t, create("editor", "elsewhere"), 201, "")
	expect(t, create("owner", "elsewhere"), 409, "slug_taken")
	var made, refused []*httptest.ResponseRecorder
	var mu sync.Mutex
	var creations sync.WaitGroup
	for i := range 8 {
		creations.Go(func() {
			got := create("owner", fmt.Sprintf("space%d", i))
			mu.Lock()
			defer mu.Unlock()
			if got.Code == 201 {
				made = append(made, got)
			} else {
				refused = append(refused, got)
			}
		})
	}
	creations.Wait()
	if len(made) != 3 {
		t.Errorf("%d were created", len(made))
	}
	for _, got := range refused {
		expect(t, got, 409, `{"error":"limit_reached","message":"a person can have created at most 3 workspaces`)
	}
	expect(t, create("editor", "another"), 201, "")
	var gone struct{ WorkspaceID string }
	if err := json.Unmarshal(made[0].Body.Bytes(), &gone); err != nil {
		t.Fatal(err)
	}
	id := gone.WorkspaceID
	b.ask(t, entity.KindWorkspace, id, &workspacev1.ChangeStatus{Status: workspacev1.Status_STATUS_DELETED})
	b.settle(t, id)
	expect(t, create("owner", "onemore"), 201, "")
	expect(t, create("owner", "toomany"), 409, "limit_reached")
}
