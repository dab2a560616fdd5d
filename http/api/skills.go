package api

import (
	"net/http"

	"github.com/atelier-run/atelier/entity/skill"
	"github.com/atelier-run/atelier/http/server"
)

// skills serves the skills that a session in a workspace finds.
type skills struct{ files Skills }

func (s skills) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: server.WorkspacePath + "/skills", Scope: server.ScopeSessions, Summary: "List the skills of a working directory",
			Handler: server.Answer(http.StatusOK, decodeSkills, s.list)},
	}
}

type skillView struct {
	Name        string `json:"name"`
	Path        string `json:"path"`
	Description string `json:"description,omitzero"`
	Scope       string `json:"scope"`
}

type skillsQuery struct {
	cwd string
	// after is the position of the last skill of the previous page; empty for the first page.
	after string
	limit int
}

func decodeSkills(c *server.Call) (skillsQuery, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "cursor", "limit", "cwd")
	if err != nil {
		return skillsQuery{}, err
	}
	in := skillsQuery{cwd: q.Text("cwd"), limit: int(q.Limit())}
	if in.cwd != "" {
		if err := server.CheckPath("cwd", in.cwd); err != nil {
			q.Fail(err)
		}
	}
	q.Cursor(func(cursor string) (err error) {
		in.after, err = c.OpenCursor(cursor, in.binding(c))
		return err
	})
	return in, q.Err
}

func (in skillsQuery) binding(c *server.Call) []byte {
	return server.Binding("skills", c.Workspace.ID, in.cwd)
}

// list returns a page of the skills of a working directory. The files are read again for each page; a skill that exists for the
// whole time is on one page, because its position depends on nothing but its path.
func (s skills) list(c *server.Call, in skillsQuery) (server.Collection[skillView], error) {
	if err := c.Authorize(); err != nil {
		return server.Collection[skillView]{}, err
	}
	all, err := s.files.List(c.Context, c.Workspace.ID, in.cwd)
	if err != nil {
		return server.Collection[skillView]{}, err
	}
	page := server.Collection[skillView]{Items: []skillView{}}
	var last skill.Skill
	for _, one := range all {
		if one.Position <= in.after {
			continue
		}
		if len(page.Items) == in.limit {
			cursor := c.SealCursor(last.Position, in.binding(c))
			page.NextCursor = &cursor
			break
		}
		page.Items, last = append(page.Items, skillView{one.Name, one.Path, one.Description, one.Scope}), one
	}
	return page, nil
}
