package http_test

import (
	"encoding/json"
	"fmt"
	nethttp "net/http"
	"strings"
	"testing"
)

// TestNamesThatTurnTextAreRefused gives such a name wherever people and applications give names.
func TestNamesThatTurnTextAreRefused(t *testing.T) {
	s := newSite(t)
	key := s.person("alice")
	s.workspace(key, "acme")
	quoted := func(text string) string {
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(encoded)
	}
	for n, turning := range []string{"\u202e", "\u202a", "\u2066", "\u2069", "\u2028", "\u2029"} {
		for _, test := range []struct{ method, path, body string }{
			{"POST", "/v1/workspaces", `{"slug":"turn","name":NAME}`},
			{"PATCH", "/v1/workspaces/acme", `{"slug":"acme","name":NAME,"publicUrlBreakAcknowledged":true}`},
			{"PATCH", "/v1/user/profile", `{"firstName":NAME}`},
			{"PATCH", "/v1/user/profile", `{"lastName":NAME}`},
			{"POST", "/v1/user/api-keys", `{"name":NAME}`},
			{"POST", "/v1/user/limited-keys", `{"name":NAME,"capabilities":["apps"]}`},
			{"POST", "/v1/user/sync-machines", `{"name":NAME,"syncDeviceId":"01arz3ndektsv4rrffq69g5fav"}`},
			{"POST", "/v1/ws/acme/agent/sessions/uploads", `{"name":NAME,"size":1}`},
			{"POST", "/v1/ws/acme/apps", `{"slug":"site","path":"site","name":NAME,"command":"true","apiScopes":[]}`},
			{"POST", "/oauth/register", `{"client_name":NAME,"redirect_uris":["https://a.example/cb"]}`},
			{"POST", "/admin/users", fmt.Sprintf(`{"email":"turn%d@example.com","name":NAME}`, n)},
		} {
			var h nethttp.Handler = s.node.Server
			if strings.HasPrefix(test.path, "/admin/") {
				h = s.node.Server.Admin()
			}
			answer := request(t, h, test.method, test.path, key, strings.ReplaceAll(test.body, "NAME", quoted("Exe"+turning+"cod")))
			if body := answer.Body.String(); answer.Code != 400 || !strings.Contains(body, "control character") && !strings.Contains(body, "client_name") {
				t.Errorf("%s %s with %q: %d %s", test.method, test.path, turning, answer.Code, body)
			}
		}
	}
}
