package oauth

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/http/browser"
)

const (
	leavePath  = "/sign-in/oidc"
	returnPath = leavePath + "/callback"
)

// accounts are the accounts of the provider, with the claims of each.
var accounts = map[string]map[string]any{
	"alice":      {"email": "Alice@example.com", "email_verified": true},
	"unverified": {"email": "alice@example.com", "email_verified": false},
	"unmarked":   {"email": "alice@example.com"},
	"nameless":   {},
	"textual":    {"email": "alice@example.com", "email_verified": "true"},
	"stranger":   {"email": "stranger@example.com", "email_verified": true},
}

// newProvidedWorld starts a node with people who sign in by a real node-oidc-provider. The node has the clock of the machine, as the
// provider does.
func newProvidedWorld(t *testing.T) *world {
	needPackages(t)
	return newWorld(t, func(w *world) {
		w.now = time.Now()
		w.provider = &browser.OIDC{Issuer: w.startProvider(), ClientID: "atelier", ClientSecret: "agreed", Name: "Example"}
	})
}

// startProvider starts the provider, and returns its issuer.
func (w *world) startProvider() string {
	w.Helper()
	table, err := json.Marshal(accounts)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), longest)
	process := exec.CommandContext(ctx, "node", "oidc-provider.mjs", w.url+returnPath, string(table))
	var problems strings.Builder
	process.Stderr = &problems
	out, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		w.Fatal(err)
	}
	issuer, err := bufio.NewReader(out).ReadString('\n')
	end := sync.OnceFunc(func() {
		cancel()
		_ = process.Wait() // cancel has killed it
	})
	w.Cleanup(end)
	if err != nil {
		end()
		w.Fatalf("the provider does not start: %v\n%s", err, problems.String())
	}
	return strings.TrimSpace(issuer)
}

// rotateKeys replaces the signing key of the provider.
func (w *world) rotateKeys() {
	w.Helper()
	response, err := w.agent.Post(w.provider.Issuer+"/rotate", "", nil)
	if err != nil || response.StatusCode != http.StatusOK {
		w.Fatalf("%v %v", response, err)
	}
	response.Body.Close()
}

// A webBrowser keeps cookies and follows redirects, up to a return from the provider.
type webBrowser struct {
	*world
	client *http.Client
}

func (w *world) webBrowser() webBrowser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.Fatal(err)
	}
	return webBrowser{w, &http.Client{Jar: jar, CheckRedirect: func(next *http.Request, _ []*http.Request) error {
		if next.URL.Path == returnPath {
			return http.ErrUseLastResponse
		}
		return nil
	}}}
}

// shown is the content of a tab of a browser: a page, or a redirect that the browser has not followed.
type shown struct {
	at   *url.URL
	code int
	to   string
	page string
}

func (b webBrowser) show(response *http.Response, err error) shown {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.Fatal(err)
	}
	return shown{response.Request.URL, response.StatusCode, response.Header.Get("Location"), string(text)}
}

func (b webBrowser) get(to string) shown {
	b.Helper()
	return b.show(b.client.Get(to))
}

// leave begins a sign-in that continues with a path of the node.
func (b webBrowser) leave(next string) shown {
	b.Helper()
	return b.get(b.url + leavePath + "?" + url.Values{"next": {next}}.Encode())
}

var (
	providerForm = regexp.MustCompile(`<form[^>]* action="([^"]*)"`)
	abortLink    = regexp.MustCompile(`<a href="([^"]*/abort)"`)
)

// signIn fills in the pages of the provider in one tab, as an account of the provider, until the provider sends the browser back. It
// returns where to.
func (b webBrowser) signIn(tab shown, account string) (back string) {
	b.Helper()
	for tab.code == http.StatusOK {
		action, prompt := providerForm.FindStringSubmatch(tab.page), hiddenOf.FindStringSubmatch(tab.page)
		if action == nil || prompt == nil {
			b.Fatalf("%s has no form: %s", tab.at, tab.page)
		}
		to, err := tab.at.Parse(html.UnescapeString(action[1]))
		if err != nil {
			b.Fatal(err)
		}
		tab = b.show(b.client.PostForm(to.String(), url.Values{"prompt": {prompt[2]}, "login": {account}, "password": {"any"}}))
	}
	return b.returned(tab)
}

// returned returns the address that the provider has sent the browser back to.
func (b webBrowser) returned(tab shown) string {
	b.Helper()
	if !strings.HasPrefix(tab.to, b.url+returnPath+"?") {
		b.Fatalf("%s: %d to %q: %s", tab.at, tab.code, tab.to, tab.page)
	}
	return tab.to
}

// expect fails the test unless the browser is at a path and shows a page with a status and a text.
func (b webBrowser) expect(got shown, code int, at, text string) {
	b.Helper()
	if got.code != code || got.at.RequestURI() != at && at != "" || !strings.Contains(got.page, text) {
		b.Errorf("%d at %s, want %d at %s with %q: %s", got.code, got.at, code, at, text, got.page)
	}
}

// The provider gives the address at its userinfo endpoint alone. The page says which claim is missing or wrong.
func TestSignInByOIDCProvider(t *testing.T) {
	w := newProvidedWorld(t)
	w.person("alice")
	for account, text := range map[string]string{
		"unverified": "The provider has not verified your email address",
		"unmarked":   "without the claim email_verified",
		"nameless":   "neither in the ID token nor from its userinfo endpoint",
		"textual":    "in another form than true or false",
		"stranger":   "No account here has the email address",
	} {
		b := w.webBrowser()
		b.expect(b.get(b.signIn(b.leave("/account"), account)), 403, "", text)
	}
	b := w.webBrowser()
	asked := b.leave("/account")
	abort := abortLink.FindStringSubmatch(asked.page)
	if abort == nil {
		t.Fatalf("%s cannot be left: %s", asked.at, asked.page)
	}
	b.expect(b.get(b.returned(b.get(html.UnescapeString(abort[1])))), 403, "", "The provider did not sign you in")
	back := b.signIn(b.leave("/account?done=joined"), "alice")
	b.expect(b.get(back), 200, "/account?done=joined", "alice@example.com")
	b.expect(b.get(back), 403, "", "start again")
}

// The tabs of a browser that are at the provider at the same time come back to their own pages, in any order.
func TestTabsAtOIDCProvider(t *testing.T) {
	w := newProvidedWorld(t)
	w.person("alice")
	b := w.webBrowser()
	first, second, third := b.leave("/account?tab=1"), b.leave("/account?tab=2"), b.leave("/account?tab=3")
	late := b.signIn(second, "alice")
	b.expect(b.get(b.signIn(third, "alice")), 200, "/account?tab=3", "alice@example.com")
	b.expect(b.get(b.signIn(first, "alice")), 200, "/account?tab=1", "alice@example.com")
	b.expect(b.get(late), 200, "/account?tab=2", "alice@example.com")
}

// The provider replaces its signing key between sign-ins, and while a browser is at the provider.
func TestKeysOfOIDCProviderRotate(t *testing.T) {
	w := newProvidedWorld(t)
	w.person("alice")
	for range 2 {
		b := w.webBrowser()
		b.expect(b.get(b.signIn(b.leave("/account"), "alice")), 200, "/account", "alice@example.com")
		w.rotateKeys()
	}
	b := w.webBrowser()
	back := b.signIn(b.leave("/account"), "alice")
	w.rotateKeys()
	b.expect(b.get(back), 200, "/account", "alice@example.com")
}

// A client's authorization request with a long state goes on after a sign-in by the provider.
func TestAuthorizesAfterOIDCProvider(t *testing.T) {
	w := newProvidedWorld(t)
	w.workspace(w.person("alice"), "acme")
	client, long := w.register(callback), ""
	for len(long) < 5500 {
		long += rand.Text()
	}
	query := with(asking(client, "files:read"), "state", long)
	b := w.webBrowser()
	asked := b.get(w.url + "/oauth/authorize?" + query.Encode())
	link := regexp.MustCompile(`href="(` + leavePath + `[^"]*)"`).FindStringSubmatch(asked.page)
	if link == nil {
		t.Fatalf("%s has no link to the provider: %s", asked.at, asked.page)
	}
	consent := b.get(b.signIn(b.get(w.url+html.UnescapeString(link[1])), "alice"))
	b.expect(consent, 200, "/oauth/authorize?"+query.Encode(), "Tester")
	var cookies []string
	for _, c := range b.client.Jar.Cookies(consent.at) {
		cookies = append(cookies, c.String())
	}
	action, form := w.form(consent.page)
	response, page := w.submit(person{cookie: strings.Join(cookies, "; ")}, action, form)
	to := w.led(response)
	if to == nil || to.Query().Get("state") != long {
		t.Fatalf("%d to %v: %s", response.StatusCode, to, page)
	}
	w.exchange(redeeming(client, to.Query().Get("code")))
}
