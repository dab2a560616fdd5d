package http

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/slug"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
)

// exportedEvent is a line of an export: of a workspace's log, or of what was done to a person.
type exportedEvent struct {
	WorkspaceID string `json:"workspaceId,omitzero"`
	Slug        string `json:"slug,omitzero"`
	UserID      string `json:"userId,omitzero"`
	Email       string `json:"email,omitzero"`
	auditView
}

// export writes logs as lines of JSON, a page of one log in memory at a time.
type export struct {
	*call
	since int64
}

// exportAudit goes through one workspace's log, or through everybody's. Within a log the newest come first.
func (s *Server) exportAudit(c *call) error {
	q, err := parseQuery(c.r.URL.RawQuery, "slug", "since")
	if err != nil {
		return err
	}
	out := export{call: c}
	if q.has("since") {
		if out.since, err = strconv.ParseInt(q.text("since"), 10, 64); err != nil || out.since < 0 {
			return invalid("since must be milliseconds since the Unix epoch")
		}
	}
	of := ""
	if q.has("slug") {
		if slug.Check(q.text("slug")) != nil {
			return errNotFound
		}
		w, err := s.resolveSlug(c.ctx, q.text("slug"), nil)
		if err != nil {
			return err
		}
		of = w.id
	}
	control := http.NewResponseController(c.w.ResponseWriter)
	leaving := &deadline{set: control.SetWriteDeadline, stall: s.options.Limits.StallTime}
	c.w.pace = func() error { leaving.extend(); return nil }
	c.w.Header().Set("Content-Type", "application/x-ndjson")
	if err = out.write(of); err != nil && c.w.status != 0 {
		c.w.failed = err
		panic(http.ErrAbortHandler) // the answer is cut short: the client must not take it for whole
	}
	return err
}

// write writes the log of one workspace; empty: of all, and of the people.
func (x export) write(workspaceID string) error {
	if workspaceID != "" {
		return x.log(workspaceID)
	}
	for after := ""; ; {
		ids, err := x.server.options.Directory.Owners(x.ctx, audit.List, after, exportPage)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := x.log(id); err != nil {
				return err
			}
		}
		after = ids[len(ids)-1]
	}
}

const exportPage = 100

// log writes one log, down to the time from which on it is wanted. Whose it is is asked once there is something to write.
func (x export) log(id string) error {
	var line exportedEvent
	for in := (listing{limit: exportPage}); ; {
		page, err := x.rows(id, audit.List, in)
		if err != nil {
			return err
		}
		for _, row := range page.GetRows() {
			e := &auditv1.Event{}
			if err := proto.Unmarshal(row, e); err != nil {
				return err
			}
			if e.GetAt() < x.since {
				return nil
			}
			if line.ID == "" {
				if line, err = x.heading(id); err != nil {
					return err
				}
			}
			line.auditView = viewAudit(e)
			if err := x.line(line); err != nil {
				return err
			}
		}
		if in.after = string(page.GetNext()); in.after == "" {
			return nil
		}
	}
}

// heading is whose log an id's is.
func (x export) heading(id string) (exportedEvent, error) {
	if strings.HasPrefix(id, "usr_") {
		person, err := x.describePerson(id)
		return exportedEvent{UserID: id, Email: person.Email}, err
	}
	w, err := x.recordWorkspace(id)
	return exportedEvent{WorkspaceID: id, Slug: w.Slug}, err
}

func (x export) line(e exportedEvent) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = x.w.Write(append(text, '\n'))
	return err
}
