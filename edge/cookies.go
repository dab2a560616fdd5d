package edge

import (
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
)

// The prefixes of the names of the platform's cookies (server.CookieName, browser.attemptCookie). ownCookie begins all these names. oidcCookie
// begins the names of the cookies of attempts to sign in with an identity provider; every name with this prefix is the platform's. All other
// names of the platform are in ownCookies. Apps may use every other name.
const (
	ownCookie  = "atelier"
	oidcCookie = ownCookie + "-oidc-"
)

var ownCookies = map[string]bool{ownCookie: true, ownCookie + "-known": true, ownCookie + "-oidc": true, visitCookie: true}

// isOwnCookie reports whether a cookie with a name is a cookie of the platform. It ignores case, because browsers compare the prefixes
// __Host- and __Secure- without regard to case.
func isOwnCookie(name string) bool {
	name = strings.ToLower(strings.Trim(name, " \t"))
	name = strings.TrimPrefix(strings.TrimPrefix(name, "__host-"), "__secure-")
	return ownCookies[name] || strings.HasPrefix(name, oidcCookie)
}

// guardClearing removes from Clear-Site-Data the directive "cookies", because browsers would remove the cookies of all hosts of the site. It
// replaces the wildcard by the directives for the cache and the storage, which affect only the origin of the app.
func guardClearing(h http.Header) {
	lines := h["Clear-Site-Data"]
	if len(lines) == 0 {
		return
	}
	var kept []string
	for directive := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		directive = strings.Trim(directive, " \t")
		switch {
		case containsFold(directive, "cookies"):
		case strings.Contains(directive, "*"):
			kept = append(kept, `"cache"`, `"storage"`)
		case directive != "":
			kept = append(kept, directive)
		}
	}
	if len(kept) == 0 {
		delete(h, "Clear-Site-Data")
		return
	}
	h["Clear-Site-Data"] = []string{strings.Join(kept, ", ")}
}

// stripCookies removes the platform's cookies from a request. The app's cookies remain byte for byte.
func stripCookies(h http.Header) {
	lines := h["Cookie"]
	if len(lines) == 0 {
		return
	}
	var kept []string
	for _, line := range lines {
		if !containsFold(line, ownCookie) {
			kept = append(kept, line)
			continue
		}
		var pairs []string
		for pair := range strings.SplitSeq(line, ";") {
			name, _, _ := strings.Cut(pair, "=")
			if pair = strings.Trim(pair, " \t"); pair != "" && !isOwnCookie(name) {
				pairs = append(pairs, pair)
			}
		}
		if len(pairs) > 0 {
			kept = append(kept, strings.Join(pairs, "; "))
		}
	}
	if len(kept) == 0 {
		delete(h, "Cookie")
		return
	}
	h["Cookie"] = kept
}

// containsFold reports whether a text has a part in lower case, regardless of its own case.
func containsFold(text, part string) bool {
	for i := 0; i+len(part) <= len(text); i++ {
		if strings.EqualFold(text[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

// guardCookies removes from a response the cookies with names of the platform. From the app's cookies it removes the attribute Domain, unless
// Domain is the host of the app: otherwise browsers would send the cookie to the platform or to other apps.
func guardCookies(h http.Header, name string) {
	lines := h["Set-Cookie"]
	if len(lines) == 0 {
		return
	}
	kept := lines[:0]
	for _, line := range lines {
		cookie, _, _ := strings.Cut(line, ";")
		cookie = strings.TrimLeft(cookie, "= \t") // browsers send a cookie without a name as its value alone, which may have the form name=value
		if of, _, _ := strings.Cut(cookie, "="); isOwnCookie(of) {
			continue
		}
		kept = append(kept, withoutDomain(line, name))
	}
	if len(kept) == 0 {
		delete(h, "Set-Cookie")
		return
	}
	h["Set-Cookie"] = kept
}

func withoutDomain(line, name string) string {
	if !containsFold(line, "domain") {
		return line
	}
	parts := strings.Split(line, ";")
	kept := parts[:1]
	for _, attribute := range parts[1:] {
		key, value, _ := strings.Cut(attribute, "=")
		if strings.EqualFold(strings.Trim(key, " \t"), "domain") && !strings.EqualFold(strings.TrimPrefix(strings.Trim(value, " \t"), "."), name) {
			continue
		}
		kept = append(kept, attribute)
	}
	return strings.Join(kept, ";")
}

// ownKey matches the keys, tokens and grants of the platform. The API keys of people begin with "atl_" (user.KeyStart).
var ownKey = regexp.MustCompile(`atl[a-z]*_[0-9a-z]{26}_[a-z2-7]{40}`)

// stripKeys removes the header Authorization if it contains a key of the platform, also as the user or the password of HTTP Basic.
func stripKeys(h http.Header) {
	for _, line := range h["Authorization"] {
		scheme, rest, _ := strings.Cut(line, " ")
		if strings.EqualFold(scheme, "Basic") {
			if decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
				line = string(decoded)
			}
		}
		if ownKey.MatchString(line) {
			delete(h, "Authorization")
			return
		}
	}
}
