package client_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/client"
)

// rowsUntil returns the rows of a session up to one of a kind.
func (s *site) rowsUntil(c *client.Client, sessionID, cursor, kind string) (rows []client.SessionRow, last string) {
	s.Helper()
	for frame, err := range c.SessionEvents(s.Context(), "acme", sessionID, cursor) {
		if err != nil {
			s.Fatal(err)
		}
		if frame.Row == nil {
			continue
		}
		if rows = append(rows, *frame.Row); frame.Row.Kind == kind {
			return rows, frame.Cursor
		}
	}
	return rows, ""
}

func TestSessions(t *testing.T) {
	s := newSite(t)
	ctx, ada, bob := t.Context(), s.person("ada"), s.person("bob")
	must[client.WorkspaceCreated](s)(ada.CreateWorkspace(ctx, client.NewWorkspace{Slug: "acme", Name: "Acme"}))

	file := must[client.SessionAttachment](s)(ada.UploadFile(ctx, "acme", client.UploadOffer{Name: "a.txt", Size: 5}, strings.NewReader("hello")))
	content, err := ada.ReadFile(ctx, "acme", file.Path)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(content); string(text) != "hello" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	content.Close()

	in := client.NewSession{Prompt: "say hi", ClientRequestID: client.NewRequestID(), Attachments: []client.SessionAttachment{file}}
	started := must[client.SessionStarted](s)(ada.StartSession(ctx, "acme", in))
	if again := must[client.SessionStarted](s)(ada.StartSession(ctx, "acme", in)); again.SessionID != started.SessionID {
		t.Errorf("%s was started as %s", started.SessionID, again.SessionID)
	}
	in.Prompt = "say ho"
	_, err = ada.StartSession(ctx, "acme", in)
	s.mustRefuse("request_id_reused", err)
	id := started.SessionID
	_, err = bob.Session(ctx, "acme", id)
	s.mustRefuse("not_found", err)
	child := must[client.SessionStarted](s)(ada.StartChildSession(ctx, "acme", id, client.NewSession{Prompt: "say child"}))
	if children := all(s, ada.ChildSessions("acme", id, client.SessionsQuery{})); len(children) != 1 || children[0].ID != child.SessionID {
		t.Errorf("%+v", children)
	}
	if top := all(s, ada.Sessions("acme", client.SessionsQuery{TopLevel: true})); len(top) != 1 || top[0].ID != id {
		t.Errorf("%+v", top)
	}

	must[client.SessionSent](s)(ada.SendMessage(ctx, "acme", id, client.SessionMessage{Text: "say more", Behavior: "follow_up"}))
	must[client.SessionSent](s)(ada.NoteSession(ctx, "acme", id, client.SessionNote{Text: "careful"}))
	_, err = ada.AnswerSession(ctx, "acme", id, client.SessionAnswer{Text: "yes"})
	s.mustRefuse("no_pending_question", err)
	renamed := must[client.Session](s)(ada.RenameSession(ctx, "acme", id, client.SessionRename{Title: "Greetings"}))
	if renamed.Title != "Greetings" || renamed.TitleOrigin != "manual" {
		t.Errorf("%+v", renamed)
	}
	_, err = ada.MoveSession(ctx, "acme", id, client.SessionMove{Cwd: "nowhere"})
	s.mustRefuse("invalid_cwd", err)

	rows, cursor := s.rowsUntil(ada, id, "", "setting")
	if len(rows) != 4 || rows[0].Attachments[0] != file || rows[3].Title != "Greetings" {
		t.Errorf("%+v", rows)
	}
	if !must[bool](s)(ada.InterruptSession(ctx, "acme", id)) {
		t.Error("nothing was interrupted")
	}
	if rows, _ := s.rowsUntil(ada, id, cursor, "terminal"); len(rows) != 1 || rows[0].TurnStatus != "interrupted" {
		t.Errorf("after the cursor: %+v", rows)
	}
	waited := must[client.SessionWaited](s)(ada.StartSessionAndWait(ctx, "acme", client.NewSession{Prompt: "say hi", ClientRequestID: in.ClientRequestID, Attachments: in.Attachments}))
	if waited.SessionID != id || waited.Terminal.TurnStatus != "interrupted" {
		t.Errorf("%+v", waited)
	}
	oldest := all(s, ada.SessionHistory("acme", id, client.HistoryQuery{Oldest: true, AfterSeq: rows[0].Seq}))
	newest := all(s, ada.SessionHistory("acme", id, client.HistoryQuery{}))
	slices.Reverse(newest)
	if len(oldest) != 5 || len(newest) != 6 || newest[5].Seq != oldest[4].Seq {
		t.Errorf("%+v\n%+v", oldest, newest)
	}

	must[client.Session](s)(ada.ArchiveSession(ctx, "acme", id, client.SessionArchive{Scope: "global", Archived: true}))
	if archived := all(s, ada.Sessions("acme", client.SessionsQuery{Archived: true})); len(archived) != 1 || archived[0].Archive.Reason == nil {
		t.Errorf("%+v", archived)
	}
	for range 2 {
		if err := ada.DeleteSession(ctx, "acme", id); err != nil {
			t.Error(err)
		}
	}
	_, err = ada.Session(ctx, "acme", id)
	s.mustRefuse("not_found", err)
}

func TestDefaultSession(t *testing.T) {
	s := newSite(t)
	ctx, ada := t.Context(), s.person("ada")
	must[client.WorkspaceCreated](s)(ada.CreateWorkspace(ctx, client.NewWorkspace{Slug: "acme", Name: "Acme"}))
	if none := must[*client.SessionDetail](s)(ada.DefaultSession(ctx, "acme", "root")); none != nil {
		t.Errorf("%+v", none)
	}
	for _, err := range ada.DefaultSessionHistory("acme", "root", client.HistoryQuery{}).All(ctx) {
		s.mustRefuse("no_default_session", err)
	}
	sent := must[client.DefaultSessionSent](s)(ada.SendDefaultMessage(ctx, "acme", "root", client.SessionMessage{Text: "say hi"}))
	bound := must[*client.SessionDetail](s)(ada.DefaultSession(ctx, "acme", "root"))
	if bound == nil || bound.ID != sent.SessionID {
		t.Errorf("%+v", bound)
	}
	for frame, err := range ada.DefaultSessionEvents(ctx, "acme", "root", "") {
		if err != nil || frame.Row.Input != "prompt" {
			t.Errorf("%+v, %v", frame.Row, err)
		}
		break
	}
	if none := must[*client.SessionDetail](s)(ada.ChooseDefaultSession(ctx, "acme", "root", client.DefaultSessionChoice{})); none != nil {
		t.Errorf("%+v", none)
	}
	must[client.Session](s)(ada.MarkSessionRead(ctx, "acme", sent.SessionID, client.SessionRead{Seq: bound.LastEventSeq}))
}
