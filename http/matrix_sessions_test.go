package http_test

import (
	"encoding/json"
	"fmt"
	"maps"
)

func init() { maps.Copy(requests, sessionRequests) }

const (
	sessionsAt = "/v1/ws/{workspaceSlug}/agent/sessions"
	defaultsAt = "/v1/ws/{workspaceSlug}/agent/defaults/{owner}"
)

// sessionRequests has an example of each operation of sessions. The session belongs to the owner.
var sessionRequests = map[string]func(*scene) exampleRequest{
	"GET " + sessionsAt:                                  inSpace("/agent/sessions", ""),
	"POST " + sessionsAt:                                 inSpace("/agent/sessions", `{"prompt":"Hello"}`),
	"POST " + sessionsAt + "/wait":                       waiting("/agent/sessions/wait", `"prompt":"Hello"`),
	"POST " + sessionsAt + "/uploads":                    inSpace("/agent/sessions/uploads", `{"name":"a.txt","size":1}`),
	"GET " + sessionsAt + "/{sessionId}":                 onSession("", "", ""),
	"PATCH " + sessionsAt + "/{sessionId}":               onSession("", `{"title":"Title"}`, ""),
	"DELETE " + sessionsAt + "/{sessionId}":              onSession("", "", onlyCreator),
	"GET " + sessionsAt + "/{sessionId}/history":         onSession("/history", "", ""),
	"GET " + sessionsAt + "/{sessionId}/events":          onSession("/events", "", ""),
	"POST " + sessionsAt + "/{sessionId}/messages":       onSession("/messages", `{"text":"Hello"}`, ""),
	"POST " + sessionsAt + "/{sessionId}/answer":         onSession("/answer", `{"text":"Hello"}`, "no_pending_question"),
	"POST " + sessionsAt + "/{sessionId}/notes":          onSession("/notes", `{"text":"Hello"}`, ""),
	"POST " + sessionsAt + "/{sessionId}/interrupt":      onSession("/interrupt", "", ""),
	"POST " + sessionsAt + "/{sessionId}/cwd":            onSession("/cwd", `{"cwd":""}`, ""),
	"PUT " + sessionsAt + "/{sessionId}/archive":         onSession("/archive", `{"scope":"personal","archived":true}`, onlyPeople),
	"PATCH " + sessionsAt + "/{sessionId}/audience":      onSession("/audience", `{"kind":"workspace"}`, onlyCreator),
	"PUT " + sessionsAt + "/{sessionId}/read":            onSession("/read", `{"seq":1}`, onlyPeople),
	"GET " + sessionsAt + "/{parentSessionId}/sessions":  onSession("/sessions", "", ""),
	"POST " + sessionsAt + "/{parentSessionId}/sessions": onSession("/sessions", `{"prompt":"Hello"}`, ""),
	"POST " + sessionsAt + "/{sessionId}/messages/wait": func(sc *scene) exampleRequest {
		return waiting("/agent/sessions/"+sc.ownAgentSession()+"/messages/wait", `"text":"Hello"`)(sc)
	},
	"POST " + sessionsAt + "/{sessionId}/answer/wait": func(sc *scene) exampleRequest {
		in := waiting("/agent/sessions/"+sc.ownAgentSession()+"/answer/wait", `"text":"Hello"`)(sc)
		in.refusal = "no_pending_question"
		return in
	},
	"POST " + sessionsAt + "/{parentSessionId}/sessions/wait": func(sc *scene) exampleRequest {
		return waiting("/agent/sessions/"+sc.ownAgentSession()+"/sessions/wait", `"prompt":"Hello"`)(sc)
	},
	"GET " + defaultsAt:                     inSpace("/agent/defaults/root", ""),
	"PUT " + defaultsAt:                     inSpace("/agent/defaults/root", `{"sessionId":null}`),
	"GET " + defaultsAt + "/history":        withoutDefault("/agent/defaults/root/history"),
	"GET " + defaultsAt + "/events":         withoutDefault("/agent/defaults/root/events"),
	"POST " + defaultsAt + "/messages":      inSpace("/agent/defaults/root/messages", `{"text":"Hello"}`),
	"POST " + defaultsAt + "/messages/wait": waiting("/agent/defaults/root/messages/wait", `"text":"Hello"`),
}

// Refusals of callers with access, for other reasons.
const (
	onlyCreator = "only the creator of the session"
	onlyPeople  = "belongs to no person"
)

// personal are operations that change only things of the caller, so that viewers may use them.
var personal = map[string]bool{
	"PUT " + sessionsAt + "/{sessionId}/archive": true, "PUT " + sessionsAt + "/{sessionId}/read": true,
}

// waiting returns an example of a request that waits.
func waiting(suffix, field string) func(*scene) exampleRequest {
	return func(sc *scene) exampleRequest {
		return exampleRequest{
			target: sc.space(suffix), body: fmt.Sprintf(`{%s,"clientRequestId":"00000000-0000-4000-8000-%012d"}`, field, sc.stage.ids.Add(1)),
		}
	}
}

func onSession(suffix, body, refusal string) func(*scene) exampleRequest {
	return func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space("/agent/sessions/" + sc.ownAgentSession() + suffix), body: body, refusal: refusal}
	}
}

func withoutDefault(suffix string) func(*scene) exampleRequest {
	return func(sc *scene) exampleRequest {
		return exampleRequest{target: sc.space(suffix), refusal: "no_default_session"}
	}
}

// ownAgentSession returns the session of the scene, which the owner has started, and starts it if there is none.
func (sc *scene) ownAgentSession() string {
	if sc.things.session != "" {
		return sc.things.session
	}
	w := request(sc.t, sc.stage.node.Server, "POST", sc.space("/agent/sessions"), sc.people["owner"].key, `{"prompt":"Hello"}`)
	var started struct{ SessionID string }
	if err := json.Unmarshal(w.Body.Bytes(), &started); err != nil || started.SessionID == "" {
		sc.t.Fatalf("%v: %s", err, w.Body)
	}
	sc.things.session = started.SessionID
	return started.SessionID
}
