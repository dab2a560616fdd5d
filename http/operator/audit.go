package operator

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity/audit"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
)

// auditLogs exports the audit logs.
type auditLogs struct{ directory Directory }

func (a auditLogs) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: "/admin/audit", Scope: server.ScopeOperator, Summary: "Export the audit logs",
			Handler: a.export, Timing: server.Transfer},
	}
}

// exportedEvent is a line of an export: a row of a workspace's or of an account's log.
type exportedEvent struct {
	WorkspaceID string `json:"workspaceId,omitzero"`
	Slug        string `json:"slug,omitzero"`
	UserID      string `json:"userId,omitzero"`
	Email       string `json:"email,omitzero"`
	api.AuditView
}

// export writes logs as lines of JSON. It has one page of one log in memory at a time.
type export struct {
	*server.Call
	directory Directory
	since     int64
}

// export exports the log of one workspace, or all logs; within a log the newest rows come first.
func (a auditLogs) export(c *server.Call) error {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "slug", "since")
	if err != nil {
		return err
	}
	out := export{Call: c, directory: a.directory}
	if q.Has("since") {
		if out.since, err = strconv.ParseInt(q.Text("since"), 10, 64); err != nil || out.since < 0 {
			return server.Invalid("since must be milliseconds since the Unix epoch")
		}
	}
	of := ""
	if q.Has("slug") {
		if slug.Check(q.Text("slug")) != nil {
			return server.ErrNotFound
		}
		w, err := c.ResolveSlug(q.Text("slug"))
		if err != nil {
			return err
		}
		of = w.ID
	}
	c.ExtendWrites()
	c.Response.Header().Set("Content-Type", "application/x-ndjson")
	return c.AbortAfterFirstByte(out.write(of))
}

// write writes the log of a workspace; "": the logs of all workspaces and accounts.
func (x export) write(workspaceID string) error {
	if workspaceID != "" {
		return x.exportLog(workspaceID)
	}
	for after := ""; ; {
		ids, err := x.directory.Owners(x.Context, audit.List, after, exportPage)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := x.exportLog(id); err != nil {
				return err
			}
		}
		after = ids[len(ids)-1]
	}
}

const exportPage = 100

// exportLog writes the rows of one log that are not older than since. It describes the owner of the log only if there are
// rows.
func (x export) exportLog(id string) error {
	var line exportedEvent
	for in := (server.Listing{Limit: exportPage}); ; {
		page, err := readRows(x.Call, x.directory, id, audit.List, in)
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
				if line, err = x.describeLog(id); err != nil {
					return err
				}
			}
			line.AuditView = api.ViewAudit(e)
			if err := x.writeEvent(line); err != nil {
				return err
			}
		}
		if in.After = string(page.GetNext()); in.After == "" {
			return nil
		}
	}
}

// describeLog returns a line with the owner of a log.
func (x export) describeLog(id string) (exportedEvent, error) {
	if strings.HasPrefix(id, "usr_") {
		person, err := describePerson(x.Call, x.directory, id)
		return exportedEvent{UserID: id, Email: person.Email}, err
	}
	w, err := viewWorkspace(x.Call, id)
	return exportedEvent{WorkspaceID: id, Slug: w.Slug}, err
}

func (x export) writeEvent(e exportedEvent) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = x.Response.Write(append(text, '\n'))
	return err
}
