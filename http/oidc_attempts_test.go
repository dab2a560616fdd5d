package http_test

import (
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"
)

// attemptCookie returns the name of the first cookie of a sign-in that has sent the browser to a provider.
func attemptCookie(to string) string {
	_, query, _ := strings.Cut(to, "?")
	values, _ := url.ParseQuery(query)
	return "atelier-oidc-" + values.Get("state")[:8] + "a"
}

// Several tabs of a browser are at the provider at the same time. Each comes back to its own page, in any order.
func TestProviderInSeveralTabs(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	p.asserts("alice", "1")
	b := s.browser()
	first := p.visit(b.get("/sign-in/oidc?next=/account?tab=1").to)
	second := p.visit(b.get("/sign-in/oidc?next=/account?tab=2").to)
	third := p.visit(b.get("/sign-in/oidc?next=/account?tab=3").to)
	b.get(second).expectRedirect("/account?tab=2")
	b.get(first).expectRedirect("/account?tab=1")
	b.get(strings.Replace(third, "code=", "code=x", 1)).expectPage(403, "did not sign you in")
	b.get(third).expectPage(403, "start again") // each state serves once
}

// The attempts of a browser stay below a number of bytes, so that its requests pass proxies; the last ones stay.
func TestProviderAttemptsAreBounded(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	p.asserts("alice", "1")
	b := s.browser()
	var backs []string
	for range 40 {
		backs = append(backs, p.visit(b.get("/sign-in/oidc?next=/account").to))
		s.clock.advance(time.Second)
	}
	size := 0
	for _, cookie := range b.client.Jar.Cookies(b.get("/sign-in").Request.URL) {
		size += len(cookie.Value)
	}
	if size > 7<<10 {
		t.Errorf("the cookies have %d bytes", size)
	}
	b.get(backs[0]).expectPage(403, "start again")
	b.get(backs[39]).expectRedirect("/account")
	b.get(backs[30]).expectRedirect("/account")
}

// A path as long as the sign-in with a password takes it is continued with after a sign-in with the provider.
func TestProviderWithALongPath(t *testing.T) {
	p, s := newProvided(t)
	s.person("alice")
	p.asserts("alice", "1")
	for _, length := range []int{0, 1800, 4000, 6 << 10} {
		b, text := s.browser(), ""
		for len(text) < length {
			text += rand.Text()
		}
		next := "/oauth/authorize?response_type=code&state=" + text[:length]
		away := b.get("/sign-in/oidc?" + url.Values{"next": {next}}.Encode())
		for _, cookie := range away.Cookies() {
			if n := len(cookie.Name) + len(cookie.Value); n > 4096 {
				t.Errorf("%d: %s has %d bytes", length, cookie.Name, n)
			}
		}
		b.get(p.visit(away.to)).expectRedirect(next)
		for _, cookie := range b.client.Jar.Cookies(away.Request.URL) {
			if strings.HasPrefix(cookie.Name, "atelier-oidc") {
				t.Errorf("%d: the cookie %s stays", length, cookie.Name)
			}
		}
	}
}
