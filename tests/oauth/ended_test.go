package oauth

import (
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/http/oauth"
)

// Consents with a code that was never redeemed, and grants with an expired last token, are not live: they are listed as ended, are
// missing from the account's page, and do not count against the limit. Live grants do.
func TestEndedGrantsDoNotCount(t *testing.T) {
	w, alice, client := stage(t)
	live := w.exchange(redeeming(client, w.code(alice, asking(client, "files:read"))))
	for range user.MaxGrants - 1 {
		w.code(alice, asking(client, "files:read"))
		w.advance(10 * time.Millisecond)
	}
	if to, page := w.answer(alice, asking(client, "files:read"), nil); to != nil || !strings.Contains(page, "can be live at a time") {
		t.Fatalf("one more than %d live grants: %v, %s", user.MaxGrants, to, page)
	}
	w.advance(oauth.CodeLife)
	_, page := w.send("GET", "/account", "", "Cookie", alice.cookie)
	if n := strings.Count(page, "/account/grants/"); n != 1 {
		t.Errorf("the page has %d grants", n)
	}
	status, list := w.api("GET", "/v1/user/oauth-grants?limit=100", alice.key, "")
	if status != 200 || strings.Count(list, `"revokedAt"`) != 99 {
		t.Errorf("%d %d: %s", status, strings.Count(list, `"revokedAt"`), list)
	}
	w.code(alice, asking(client, "files:read"))
	live = w.exchange(refreshing(client, live.refresh))
	w.advance(oauth.RefreshLife)
	_, list = w.api("GET", "/v1/user/oauth-grants?limit=1", alice.key, "")
	if !strings.Contains(list, `"revokedAt"`) {
		t.Errorf("the list has %s after the last token expired", list)
	}
	w.refused(refreshing(client, live.refresh), 400, "invalid_grant")
}
