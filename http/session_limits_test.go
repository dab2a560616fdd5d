package http_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestSessionLimits sends inputs at their limits and beyond them.
func TestSessionLimits(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	at := sessionsIn + "/" + sc.startedAs("owner", `{"prompt":"Hello"}`)
	repeated := func(item string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
	}
	attached := func(n int, size string) string {
		return `{"text":"Look","attachments":` + repeated(`{"path":"a.txt","name":"A","size":`+size+`}`, n) + `}`
	}
	var members []string
	for range 101 {
		members = append(members, fmt.Sprintf("%q", sc.stage.newID("usr_")))
	}
	label := func(n int) string {
		return fmt.Sprintf(`{"text":"Look","attachments":[{"path":"a.txt","name":%q,"size":1}]}`, strings.Repeat("ü", n))
	}
	for _, test := range []struct {
		request, body string
		status        int
		part          string
	}{
		{"PATCH " + at, fmt.Sprintf(`{"title":%q}`, strings.Repeat("ü", 200)), 200, ""},
		{"PATCH " + at, fmt.Sprintf(`{"title":%q}`, strings.Repeat("ü", 201)), 400, "title must have"},
		{"POST " + at + "/messages", attached(32, "1"), 200, ""},
		{"POST " + at + "/messages", attached(33, "1"), 400, "at most 32"},
		{"POST " + at + "/messages", attached(1, "2"), 400, "attachments/0/size is not the size of the file"},
		{"POST " + at + "/messages", attached(1, "1.5"), 400, "size"},
		{"POST " + at + "/messages", label(255), 200, ""},
		{"POST " + at + "/messages", label(256), 400, "attachments/0/name"},
		{"POST " + at + "/messages", `{"text":"Look","attachments":[{"path":"a.txt","name":"A","size":1,"data":"YQ=="}]}`, 400, "unknown field"},
		{"POST " + at + "/messages", `{"text":"Look","sessionId":"a"}`, 400, "unknown field"},
		{"POST " + at + "/messages", `{"text":"Look","sender":{"kind":"system"}}`, 400, "unknown field"},
		{"POST " + at + "/notes", fmt.Sprintf(`{"text":%q}`, strings.Repeat("ü", 200_000)), 200, ""},
		{"POST " + at + "/notes", fmt.Sprintf(`{"text":%q}`, strings.Repeat("ü", 200_001)), 400, "text must have"},
		{"POST " + at + "/messages/wait", `{"text":"Look","clientRequestId":"1"}`, 400, "clientRequestId must be a UUID"},
		{"POST " + at + "/answer/wait", `{"text":"Look"}`, 400, "clientRequestId is required"},
		{"POST " + at + "/sessions/wait", `{"prompt":"Look"}`, 400, "clientRequestId is required"},
		{"POST " + sessionsIn, `{"prompt":"Look","memberUserIds":[` + strings.Join(members[:100], ",") + `]}`, 400, "ids of members"},
		{"POST " + sessionsIn, `{"prompt":"Look","memberUserIds":[` + strings.Join(members, ",") + `]}`, 400, "at most 100"},
		{"POST " + sessionsIn, `{"prompt":"Look","memberUserIds":[]}`, 201, `"audience":{"kind":"specific","count":0,"preview":[]}`},
		{"PUT " + at + "/read", `{"seq":9007199254740992}`, 400, "seq must be"},
		{"GET " + sessionsIn + "?search=" + url.QueryEscape(strings.Repeat("ü", 200)), "", 200, ""},
		{"GET " + sessionsIn + "?search=" + url.QueryEscape(strings.Repeat("ü", 201)), "", 400, "search"},
		{"GET " + sessionsIn + "?limit=100", "", 200, ""},
		{"GET " + sessionsIn + "?limit=101", "", 400, "limit"},
		{"GET " + sessionsIn + "?excludeDefault=true&topLevel=true", "", 200, ""},
		{"GET " + sessionsIn + "?excludeDefault=True", "", 400, "excludeDefault"},
		{"GET " + at + "/sessions?topLevel=1", "", 400, "topLevel"},
		{"GET " + at + "/history?order=desc&afterSeq=1", "", 400, "afterSeq needs order=asc"},
		{"GET " + at + "/history?order=asc&afterSeq=9007199254740991", "", 200, `{"items":[],"nextCursor":null}`},
		{"GET " + at + "/history?order=asc&afterSeq=9007199254740992", "", 400, "afterSeq"},
		{"GET " + at + "/history?order=asc&afterSeq=", "", 400, "afterSeq"},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		if got := sc.drive(method, path, "owner", test.body); got.Code != test.status || !strings.Contains(got.Body.String(), test.part) {
			t.Errorf("%s %.80s: %d %.200s, want %d %s", test.request, test.body, got.Code, got.Body, test.status, test.part)
		}
	}
}

// TestHistoryPages reads rows that are more than a page holds, in both orders. No page is larger than its limit, and each row
// is read once.
func TestHistoryPages(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	const start = `{"prompt":"Hello","clientRequestId":"6f1c8a52-0f0e-4c8b-9a51-5f6f3f9b6c01"}`
	at := sessionsIn + "/" + sc.startedAs("owner", start)
	for range 7 {
		sc.must("POST", at+"/messages", fmt.Sprintf(`{"text":%q}`, strings.Repeat("ü", 190_000))) // 380 kB
	}
	var seqs [2][]uint64
	for i, order := range []string{"asc", "desc"} {
		pages, cursor := 0, ""
		for {
			got := sc.drive("GET", at+"/history?limit=100&order="+order+cursor, "owner", "")
			var p listed
			if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || got.Body.Len() > 1<<20+1000 || len(p.Items) == 0 {
				t.Fatalf("%d %v: %d bytes, %d rows", got.Code, err, got.Body.Len(), len(p.Items))
			}
			for _, row := range p.Items {
				seqs[i] = append(seqs[i], row.Seq)
			}
			if pages++; p.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + url.QueryEscape(*p.NextCursor)
		}
		if pages != 4 || len(seqs[i]) != 8 {
			t.Errorf("%s: %d rows on %d pages", order, len(seqs[i]), pages)
		}
	}
	for i, seq := range seqs[0] {
		if seqs[1][7-i] != seq || i > 0 && seqs[0][i-1] >= seq {
			t.Fatalf("ascending %v, descending %v", seqs[0], seqs[1])
		}
	}
	var again struct{ History listed }
	sc.stage.decode(sc.drive("POST", sessionsIn, "owner", start), 200, &again)
	if h := again.History; len(h.Items) != 1 || h.NextCursor == nil {
		t.Errorf("the answer to a repeated start has %d rows of 380 kB, and the cursor %v", len(h.Items), h.NextCursor)
	}
}

// TestSenders checks the author of the inputs of each kind of credential.
func TestSenders(t *testing.T) {
	b := newBoundary(t)
	sc := b.scene(t, visitor{name: "owner", role: "owner"}, true)
	owner := fmt.Sprintf(`"sender":{"kind":"user","userId":%q}`, sc.people["owner"].id)
	for name, test := range map[string]struct {
		credential headers
		want       string
	}{
		"a key":            {sc.bearerOf("owner"), owner},
		"a browser":        {sc.cookie(), owner},
		"an OAuth client":  {oauth("owner", "sessions")(sc), owner},
		"an impersonation": {sc.impersonation(), owner},
		"an app":           {appKey("owner", "sessions")(sc), `"sender":{"kind":"app","appId":"`},
		"the computer":     {sc.computer(), `"sender":{"kind":"system"}`},
	} {
		in := exampleRequest{target: sc.space(sessionsIn), body: `{"prompt":"Hello"}`}
		for _, r := range b.sessionOperations() {
			if operationOf(r) == "POST "+sessionsAt {
				got := sc.send(r, in, test.credential, in.body)
				if got.Code != 201 || !strings.Contains(got.Body.String(), test.want) {
					t.Errorf("%s: %d %s, want %s", name, got.Code, got.Body, test.want)
				}
			}
		}
	}
}

// TestUploadEndsWithAccess uses the URL of an upload after the person who requested it has lost the access.
func TestUploadEndsWithAccess(t *testing.T) {
	for _, loss := range accessLosses {
		t.Run(loss.name, func(t *testing.T) {
			b := newBoundary(t)
			sc := b.scene(t, visitor{name: "editor", role: "editor"}, true)
			var offered struct{ UploadURL, Path string }
			sc.stage.decode(sc.drive("POST", sessionsIn+"/uploads", "editor", `{"name":"a.txt","size":1}`), 201, &offered)
			target, err := url.Parse(offered.UploadURL)
			if err != nil {
				t.Fatal(err)
			}
			loss.lose(sc)
			got := request(t, b.stage.node.Server, "PUT", target.Path, "", "a", "Content-Type", "text/plain")
			expect(t, got, loss.status, loss.code)
			if got := sc.drive("GET", "/drive/"+offered.Path, "owner", ""); got.Code != 404 {
				t.Errorf("the file was written: %d", got.Code)
			}
		})
	}
}
