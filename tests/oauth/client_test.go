package oauth

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// verifier is the PKCE verifier and callback the redirect URI of every request in these tests.
const (
	verifier = "a-verifier-that-nobody-guesses-0123456789-ABCDEFG"
	callback = "https://client.example/callback"
	state    = "a state of some length"
)

// send sends a request, reads the response, and compares both with the OpenAPI document.
func (w *world) send(method, target, body string, headers ...string) (*http.Response, string) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+target, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := w.agent.Do(r)
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		w.Fatal(err)
	}
	w.conforms(r, body, response, string(text))
	return response, string(text)
}

func (w *world) api(method, target, key, body string) (int, string) {
	w.Helper()
	response, text := w.send(method, target, body, "Authorization", "Bearer "+key, "Content-Type", "application/json")
	return response.StatusCode, text
}

// post sends a form to an endpoint for clients and decodes the JSON response.
func (w *world) post(target string, form url.Values) (int, map[string]any) {
	w.Helper()
	response, text := w.send("POST", target, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	var answer map[string]any
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		w.Fatalf("%d %s: %v", response.StatusCode, text, err)
	}
	if response.Header.Get("Cache-Control") != "no-store" || response.Header.Get("Access-Control-Allow-Origin") != "*" {
		w.Errorf("%s: %v", target, response.Header)
	}
	if target == "/oauth/token" && response.StatusCode == 200 && response.Header.Get("Pragma") != "no-cache" { // RFC 6749, section 5.1
		w.Errorf("the token response may be cached: %v", response.Header)
	}
	return response.StatusCode, answer
}

// register registers a client and returns its id.
func (w *world) register(redirects ...string) string {
	w.Helper()
	body, _ := json.Marshal(map[string]any{"client_name": "Tester", "redirect_uris": redirects})
	return w.registered(string(body))
}

// registered registers a client with any metadata and returns its id.
func (w *world) registered(metadata string) string {
	w.Helper()
	response, text := w.send("POST", "/oauth/register", metadata, "Content-Type", "application/json")
	var made struct {
		ID string `json:"client_id"`
	}
	if err := json.Unmarshal([]byte(text), &made); err != nil || response.StatusCode != 201 {
		w.Fatalf("%d %s", response.StatusCode, text)
	}
	return made.ID
}

// asking returns the query of a valid authorization request.
func asking(clientID string, scopes ...string) url.Values {
	sum := sha256.Sum256([]byte(verifier))
	return url.Values{
		"response_type": {"code"}, "client_id": {clientID}, "redirect_uri": {callback}, "state": {state},
		"scope": {strings.Join(scopes, " ")}, "code_challenge_method": {"S256"},
		"code_challenge": {base64.RawURLEncoding.EncodeToString(sum[:])},
	}
}

// open requests the consent page as a person's browser does.
func (w *world) open(p person, query url.Values) (*http.Response, string) {
	w.Helper()
	return w.send("GET", "/oauth/authorize?"+query.Encode(), "", "Cookie", p.cookie)
}

var (
	actionOf  = regexp.MustCompile(`<form method="post" action="([^"]*)"`)
	hiddenOf  = regexp.MustCompile(`<input type="hidden" name="([^"]*)" value="([^"]*)"`)
	optionOf  = regexp.MustCompile(`<option value="([^"]*)"`)
	checkedOf = regexp.MustCompile(`<input type="checkbox" name="([^"]*)" value="([^"]*)" checked`)
)

// form returns the form that a browser sends when the person presses the first button of a page.
func (w *world) form(page string) (action string, form url.Values) {
	w.Helper()
	found := actionOf.FindStringSubmatch(page)
	if found == nil {
		w.Fatalf("no form: %s", page)
	}
	form = url.Values{"decision": {"allow"}}
	for _, field := range append(hiddenOf.FindAllStringSubmatch(page, -1), checkedOf.FindAllStringSubmatch(page, -1)...) {
		form.Add(field[1], html.UnescapeString(field[2]))
	}
	if option := optionOf.FindStringSubmatch(page); option != nil {
		form.Set("workspace", option[1])
	}
	return html.UnescapeString(found[1]), form
}

func (w *world) submit(p person, action string, form url.Values) (*http.Response, string) {
	w.Helper()
	return w.send("POST", action, form.Encode(), "Cookie", p.cookie, "Content-Type", "application/x-www-form-urlencoded",
		"Origin", w.url, "Sec-Fetch-Site", "same-origin")
}

// answer opens the consent page and submits its form after edit has changed it.
func (w *world) answer(p person, query url.Values, edit func(url.Values)) (to *url.URL, page string) {
	w.Helper()
	response, page := w.open(p, query)
	if response.StatusCode != 200 {
		w.Fatalf("no consent page: %d %v %s", response.StatusCode, response.Header, page)
	}
	action, form := w.form(page)
	if edit != nil {
		edit(form)
	}
	response, page = w.submit(p, action, form)
	return w.led(response), page
}

// led returns the target of a redirect, or of a page that goes on to a further page, or nil if the response is neither.
func (w *world) led(response *http.Response) *url.URL {
	target, goesOn := strings.CutPrefix(response.Header.Get("Refresh"), "0; url=")
	switch {
	case response.StatusCode == 303:
		target = response.Header.Get("Location")
	case !goesOn:
		return nil
	}
	to, err := url.Parse(target)
	if err != nil {
		w.Fatal(err)
	}
	return to
}

// code returns the authorization code that the client gets when the person allows the whole request.
func (w *world) code(p person, query url.Values) string {
	w.Helper()
	to, page := w.answer(p, query, nil)
	if to == nil {
		w.Fatalf("the consent was not accepted: %s", page)
	}
	q := to.Query()
	if q.Get("state") != state || q.Get("iss") != w.url || !strings.HasPrefix(to.String(), query.Get("redirect_uri")) {
		w.Fatalf("redirected to %s, without a code", to)
	}
	return q.Get("code")
}

func redeeming(clientID, code string) url.Values {
	return url.Values{
		"grant_type": {"authorization_code"}, "client_id": {clientID}, "code": {code}, "redirect_uri": {callback},
		"code_verifier": {verifier},
	}
}

func refreshing(clientID, token string) url.Values {
	return url.Values{"grant_type": {"refresh_token"}, "client_id": {clientID}, "refresh_token": {token}}
}

type tokens struct{ access, refresh string }

// exchange sends a form to the token endpoint and returns the tokens. It fails the test if the endpoint refuses the form.
func (w *world) exchange(form url.Values) tokens {
	w.Helper()
	status, answer := w.post("/oauth/token", form)
	if status != 200 || answer["token_type"] != "Bearer" || answer["expires_in"] != 900.0 {
		w.Fatalf("%d %v", status, answer)
	}
	return tokens{answer["access_token"].(string), answer["refresh_token"].(string)}
}

// refused sends a form to the token endpoint, which must refuse it with a status and an error name.
func (w *world) refused(form url.Values, status int, name string) {
	w.Helper()
	if got, answer := w.post("/oauth/token", form); got != status || answer["error"] != name {
		w.Errorf("%d %v, want %d %s", got, answer, status, name)
	}
}

// opens reports whether the API accepts an access token.
func (w *world) opens(token string) bool {
	w.Helper()
	status, text := w.api("GET", "/v1/whoami", token, "")
	if status != 200 && status != 401 {
		w.Fatalf("%d %s", status, text)
	}
	return status == 200
}
