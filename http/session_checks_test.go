package http_test

import (
	"bytes"
	nethttp "net/http"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/http/server"
)

const notFound = `{"error":"not_found","message":"not found"}`

// sessionOperations returns the operations of sessions that need a credential.
func (b *boundary) sessionOperations() (routes []server.Route) {
	for _, r := range b.stage.node.Server.Routes() {
		if strings.Contains(r.Path, "/agent/") || strings.HasSuffix(r.Path, "/skills") {
			routes = append(routes, r)
		}
	}
	return routes
}

// exampleOf returns the example of an operation.
func exampleOf(sc *scene, r server.Route) exampleRequest {
	if made := requests[operationOf(r)]; made != nil {
		return made(sc)
	}
	sc.t.Fatalf("%s has no example", operationOf(r))
	return exampleRequest{}
}

// bearerOf returns the credential of an account.
func (sc *scene) bearerOf(name string) headers { return bearer(sc.people[name].key) }

// TestHiddenSessions sends every operation of a session to a session with an audience that excludes the caller, to a session that
// does not exist, and to a text that is no id, each with valid and with invalid input. The answers are the same.
func TestHiddenSessions(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	hidden := sc.startedAs("owner", `{"prompt":"Hello","memberUserIds":[]}`)
	for _, id := range []string{hidden, "ses_01j00000000000000000000zzz", "nonsense"} {
		sc.things.session = id
		for _, r := range b.sessionOperations() {
			if !strings.Contains(r.Path, "essionId}") {
				continue
			}
			in := exampleOf(sc, r)
			deletes := r.Method == "DELETE"
			for _, wrong := range []bool{false, true} {
				target, body := in.target, in.body
				if wrong && body != "" {
					body = `{"unknown":1}`
				} else if wrong {
					target += "?unknown=1"
				}
				for who, want := range map[string]struct {
					status int
					body   string
				}{"editor": {404, notFound}, "viewer": {404, notFound}, "outsider": {404, notFound}, "nobody": {401, "unauthorized"}} {
					credential := sc.bearerOf(who)
					switch {
					case who == "nobody":
						credential = nil
					case who == "viewer" && changes(r) && !personal[operationOf(r)] && !deletes:
						want.status, want.body = 403, "forbidden"
					case deletes && who == "viewer" && wrong:
						want.status, want.body = 403, "forbidden"
					case deletes && who == "editor" && wrong:
						want.status, want.body = 400, "unknown query parameter"
					case deletes && who != "outsider":
						want.status, want.body = 204, ""
					}
					got := sc.send(r, exampleRequest{target: target, body: body}, credential, body)
					if got.Code != want.status || !strings.Contains(got.Body.String(), want.body) || want.body == notFound && got.Body.String() != notFound {
						t.Errorf("%s %s %s as %s: %d %s, want %d %s", r.Method, target, body, who, got.Code, got.Body, want.status, want.body)
					}
				}
			}
		}
	}
	// The owner sees it.
	sc.things.session = hidden
	for _, r := range b.sessionOperations() {
		if in := exampleOf(sc, r); strings.Contains(r.Path, "essionId}") && r.Method == "GET" && !strings.HasSuffix(r.Path, "/events") {
			if got := sc.send(r, in, sc.bearerOf("owner"), ""); got.Code != 200 {
				t.Errorf("%s %s: %d %s", r.Method, in.target, got.Code, got.Body)
			}
		}
	}
}

// TestAudienceIsCheckedBeforeTheInput sends invalid changes of an audience as an editor without the permission to change it.
func TestAudienceIsCheckedBeforeTheInput(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	at := sc.space("/agent/sessions/" + sc.startedAs("owner", `{"prompt":"Hello"}`) + "/audience")
	for _, body := range []string{`{"kind":"all"}`, `{"unknown":1}`, `{"kind":"specific","add":["usr_none"]}`, `{"kind":"specific"}`} {
		expect(t, request(t, b.stage.node.Server, "PATCH", at, sc.people["editor"].key, body), 403, "only the creator of the session")
		expect(t, request(t, b.stage.node.Server, "PATCH", at, sc.people["viewer"].key, body), 403, "forbidden")
	}
	expect(t, request(t, b.stage.node.Server, "PATCH", at, sc.people["owner"].key, `{"kind":"specific","add":["usr_none"]}`), 400, "add must be ids of members")
}

// startedAs starts a session and returns its id.
func (sc *scene) startedAs(who, body string) string {
	sc.t.Helper()
	var started struct{ SessionID string }
	sc.stage.T, sc.stage.as, sc.stage.keys["who"] = sc.t, "who", sc.people[who].key
	sc.stage.decode(sc.stage.send("POST", sc.space("/agent/sessions"), body), 201, &started)
	return started.SessionID
}

// TestSessionInputs sends invalid queries and bodies to every operation of sessions.
func TestSessionInputs(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	sc.ownAgentSession()
	for _, r := range b.sessionOperations() {
		in := exampleOf(sc, r)
		check := func(name string, got int, body string, status int, part string) {
			if got != status || !strings.Contains(body, part) {
				t.Errorf("%s with %s: %d %s, want %d %s", operationOf(r), name, got, body, status, part)
			}
		}
		send := func(name, query, body string, status int, part string) {
			got := sc.send(r, exampleRequest{target: in.target + query, body: in.body}, sc.bearerOf("owner"), body)
			check(name, got.Code, got.Body.String(), status, part)
		}
		send("an unknown parameter", "?unknown=1", in.body, 400, `unknown query parameter \"unknown\"`)
		for _, known := range []string{"cursor", "limit", "order", "afterSeq", "bucket", "archived", "search", "agentId", "excludeDefault", "topLevel", "cwd"} {
			send("a repeated "+known, "?"+known+"=1&"+known+"=1", in.body, 400, "query parameter")
		}
		send("a malformed query", "?a=%zz", in.body, 400, "malformed")
		if r.Method == "GET" {
			got, head := sc.send(r, in, sc.bearerOf("owner"), ""), sc.send(server.Route{Method: nethttp.MethodHead, Path: r.Path}, in, sc.bearerOf("owner"), "")
			if head.Code != got.Code {
				t.Errorf("%s: HEAD %d, GET %d", operationOf(r), head.Code, got.Code)
			}
		}
		if in.body == "" {
			continue
		}
		first, rest, _ := strings.Cut(strings.TrimPrefix(in.body, "{"), ":")
		value := strings.FieldsFunc(rest, func(r rune) bool { return r == ',' || r == '}' })[0]
		for name, body := range map[string]string{
			"a duplicate field": `{` + first + `:` + value + `,` + in.body[1:], "an unknown field": `{"unknown":1,` + in.body[1:], "trailing data": in.body + "{}",
			"an array": "[" + in.body + "]", "null": "null", "invalid UTF-8": strings.Replace(in.body, `:`, ":\"\xff\",\"a\":", 1),
			"a field of another type": `{` + first + `:{}}`,
		} {
			send(name, "", body, 400, "invalid_request")
		}
		r, err := nethttp.NewRequestWithContext(t.Context(), r.Method, b.stage.live.URL+in.target, bytes.NewBufferString(in.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", sc.bearerOf("owner")["Authorization"])
		r.Header.Set("Content-Type", "text/plain")
		response, err := b.stage.live.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		check("another media type", response.StatusCode, "", 415, "")
		response.Body.Close()
	}
}
