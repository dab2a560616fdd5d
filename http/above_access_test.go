package http_test

import (
	"strings"
	"testing"

	"github.com/atelier-run/atelier/http"
	"github.com/atelier-run/atelier/http/server"
)

// TestBasicAboveDrives sends HTTP Basic to operations beside the folders above the drives. Only WebDAV accepts it.
func TestBasicAboveDrives(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	key := sc.people["owner"].key
	node, password := sc.stage.node.Server, basic(key)
	for _, path := range []string{"/v1/whoami", sc.space("/members"), sc.space("/file-activity/feed")} {
		if got := sendAbove(t, node, "GET", path, "Bearer "+key, ""); got.Code != 200 {
			t.Errorf("GET %s with a bearer token: %d %s", path, got.Code, got.Body)
		}
		got := sendAbove(t, node, "GET", path, password, "")
		if challenges := strings.Join(got.Result().Header["Www-Authenticate"], " "); got.Code != 401 || strings.Contains(challenges, "Basic") {
			t.Errorf("GET %s with HTTP Basic: %d %q", path, got.Code, challenges)
		}
	}
	for _, path := range []string{"/v1", "/v1/ws", sc.space("")} {
		if got := sendAbove(t, node, "GET", path, password, ""); got.Code != 404 {
			t.Errorf("GET %s with HTTP Basic: %d %s", path, got.Code, got.Body)
		}
	}
	with, without := sendAbove(t, node, "GET", "/", password, ""), sendAbove(t, node, "GET", "/", "", "")
	if to := with.Result().Header.Get("Location"); with.Code != without.Code || to != without.Result().Header.Get("Location") {
		t.Errorf("GET / with HTTP Basic leads to %d %q, and without to %d", with.Code, to, without.Code)
	}
	if got := sendAbove(t, node, "PROPFIND", "/", password, "", "Depth", "0"); got.Code != 207 {
		t.Errorf("PROPFIND / with HTTP Basic: %d %s", got.Code, got.Body)
	}
}

// TestCredentialsAboveDrives lists the workspaces with each kind of credential. The list has the workspace if its folder answers 207.
func TestCredentialsAboveDrives(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{name: "editor"}, true)
	for name, test := range map[string]struct {
		credential   func(*scene) headers
		list, folder int
		isListed     bool
	}{
		"a session":                  {(*scene).cookie, 207, 207, true},
		"a key for here":             {(*scene).keyForHere, 207, 207, true},
		"a key for elsewhere":        {(*scene).keyForElsewhere, 207, 404, false},
		"a key that reads files":     {limitedKey("owner", []string{"files:read"}), 207, 207, true},
		"a key without files":        {limitedKey("owner", []string{"agents"}), 207, 403, false},
		"a revoked key":              {(*scene).revokedLimitedKey, 401, 401, false},
		"an unknown key":             {(*scene).unknownKey, 401, 401, false},
		"an expired key":             {(*scene).expiredKey, 401, 401, false},
		"a session as a bearer":      {(*scene).sessionAsBearer, 401, 401, false},
		"a computer":                 {(*scene).computer, 207, 207, true},
		"a computer of elsewhere":    {(*scene).foreignComputer, 207, 404, false},
		"an app of elsewhere":        {(*scene).foreignApp, 207, 404, false},
		"a grant that reads files":   {oauth("owner", "files:read"), 207, 207, true},
		"a grant without files":      {oauth("owner", "agents"), 207, 403, false},
		"a grant of another server":  {(*scene).foreignGrant, 401, 401, false},
		"a revoked grant":            {(*scene).revokedGrant, 401, 401, false},
		"a request without anything": {func(*scene) headers { return nil }, 401, 401, false},
	} {
		sent := []string{"Depth", "1"}
		for header, value := range test.credential(sc) {
			sent = append(sent, header, value)
		}
		list := sendAbove(t, sc.stage.node.Server, "PROPFIND", "/v1/ws", "", "", sent...)
		folder := sendAbove(t, sc.stage.node.Server, "PROPFIND", sc.space(""), "", "", sent...)
		if isListed := strings.Contains(list.Body.String(), sc.space("/")); list.Code != test.list || isListed != test.isListed {
			t.Errorf("%s: the list is %d %s", name, list.Code, list.Body)
		}
		if folder.Code != test.folder {
			t.Errorf("%s: the folder is %d %s", name, folder.Code, folder.Body)
		}
	}
}

// TestLimitAboveDrives sends requests without a valid credential until the limit of the address refuses them.
func TestLimitAboveDrives(t *testing.T) {
	for _, method := range []string{"OPTIONS", "PROPFIND"} {
		for _, path := range []string{"/", "/v1", "/v1/ws", "/v1/ws/acme"} {
			w, clock := newFakeEntities(), newClock()
			s := w.server(t, func(o *http.Options) {
				o.Clock, o.Limits = clock.Now, server.Limits{AddressRate: 1, AddressBurst: 2}
			})
			unknown := basic(newFakeEntities().key(alice))
			for i := range 3 {
				got := sendAbove(t, s, method, path, unknown, "", "Depth", "0")
				if isRefused := got.Code == 429; isRefused != (i == 2) {
					t.Errorf("%s %s, request %d: %d %s", method, path, i, got.Code, got.Body)
				}
			}
		}
	}
}
