package api

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/http/server"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// maxSessionSearch bounds the search text, in characters.
const maxSessionSearch = 200

// sessionListing is a request for a page of sessions.
type sessionListing struct {
	bucket, search, agentID  string
	archived, excludeDefault bool
	topLevel                 bool
	limit                    int32
	// after is the position at which the previous page ended; empty for the first page.
	after string
}

// decodeList decodes the parameters of a list of sessions.
func (s sessions) decodeList(c *server.Call) (sessionListing, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "cursor", "limit", "bucket", "archived", "search", "agentId", "excludeDefault", "topLevel")
	if err != nil {
		return sessionListing{}, err
	}
	in := sessionListing{
		limit: q.Limit(), archived: q.Choice("archived", "exclude", "only") == "only", search: q.Text("search"), agentID: q.Text("agentId"),
		excludeDefault: isTrue(q, "excludeDefault"), topLevel: isTrue(q, "topLevel"),
	}
	if q.Has("bucket") {
		in.bucket = q.Choice("bucket", session.BucketAsking, session.BucketRunning, session.BucketScheduled, session.BucketDone)
	}
	if utf8.RuneCountInString(in.search) > maxSessionSearch {
		q.Fail(server.Invalid("search must have at most %d characters", maxSessionSearch))
	}
	if q.Has("agentId") && in.agentID == "" {
		q.Fail(server.Invalid("agentId must not be empty"))
	}
	q.Cursor(func(cursor string) (err error) {
		in.after, err = c.OpenCursor(cursor, in.binding(c))
		return err
	})
	return in, q.Err
}

// isTrue returns a parameter that is absent or "true".
func isTrue(q *server.Query, name string) bool {
	if q.Has(name) && q.Text(name) != "true" {
		q.Fail(server.Invalid("%s must be true, or be omitted", name))
	}
	return q.Has(name)
}

// binding returns the binding of the cursors of a walk: its filters, the parent, and the reader, because readers have different lists.
func (in sessionListing) binding(c *server.Call) []byte {
	p := c.Caller.Principal
	reader := p.GetUserId()
	if reader == "" {
		reader = p.GetCredentialId()
	}
	return server.Binding("sessions", c.Workspace.ID, c.Variable("parentSessionId"), reader, in.bucket, in.search, in.agentID,
		strconv.FormatBool(in.archived), strconv.FormatBool(in.excludeDefault), strconv.FormatBool(in.topLevel))
}

// list returns a page of the sessions of a workspace, newest first.
func (s sessions) list(c *server.Call, in sessionListing) (server.Collection[sessionSummary], error) {
	scope := session.ScopeAll
	if in.topLevel {
		scope = session.ScopeTopLevel
	}
	return readSessions(c, scope, in)
}

// listChildren returns a page of the children of the session in the path, newest first. None of them is at the top level.
func (s sessions) listChildren(c *server.Call, in sessionListing) (server.Collection[sessionSummary], error) {
	parent, err := pathSession(c, "parentSessionId")
	if err != nil {
		return server.Collection[sessionSummary]{}, err
	}
	if _, err := describeSession(c, parent); err != nil {
		return server.Collection[sessionSummary]{}, err
	}
	if in.topLevel {
		return server.Collection[sessionSummary]{Items: []sessionSummary{}}, nil
	}
	return readSessions(c, parent, in)
}

func readSessions(c *server.Call, scope string, in sessionListing) (server.Collection[sessionSummary], error) {
	page := server.Collection[sessionSummary]{Items: []sessionSummary{}}
	granted, err := c.FetchAuthorization()
	if err != nil {
		return page, err
	}
	filter := &sessionv1.Filter{AgentId: in.agentID, Archived: in.archived, Search: in.search}
	if in.excludeDefault {
		if filter.Except, err = defaultSessions(c); err != nil {
			return page, err
		}
	}
	rows, next, err := listSessions(c, scope, in.bucket, filter, in.after, in.limit)
	if err != nil {
		return page, err
	}
	names, err := lookUpNames(c, rows...)
	if err != nil {
		return page, err
	}
	call := entity.Call{Now: c.Now(), Identity: c.Workspace.ID, Principal: c.Caller.Principal, Role: granted.GetRole()}
	for _, row := range rows {
		page.Items = append(page.Items, names.viewSummary(row, session.PermissionsOf(call, row)))
	}
	if next != "" {
		cursor := c.SealCursor(next, in.binding(c))
		page.NextCursor = &cursor
	}
	return page, nil
}

// listSessions returns a page of the sessions in a scope and a bucket, as the caller sees them, and the position after it.
func listSessions(c *server.Call, scope, bucket string, filter *sessionv1.Filter, after string, limit int32) ([]*sessionv1.Session, string, error) {
	return listSessionsAs(c, c.Caller.Principal, scope, bucket, filter, after, limit)
}

// listSessionsAs is listSessions for another reader.
func listSessionsAs(
	c *server.Call, reader *wirev1.Principal, scope, bucket string, filter *sessionv1.Filter, after string, limit int32,
) ([]*sessionv1.Session, string, error) {
	encoded, err := proto.Marshal(filter)
	if err != nil {
		return nil, "", err
	}
	found, err := server.Ask[*wirev1.Page](c, entity.Command{Kind: entity.KindWorkspace, Identity: c.Workspace.ID, Principal: reader, Message: &wirev1.List{
		Name: session.SessionList, Prefix: []byte(session.RangePrefix(scope, bucket, filter.GetArchived())), Filter: encoded,
		After: []byte(after), Limit: limit,
	}})
	if err != nil {
		return nil, "", err
	}
	rows, err := server.DecodeRows(found, func(row *sessionv1.SummaryRow) *sessionv1.Session { return row.GetSession() })
	return rows, string(found.GetNext()), err
}

// activeWork returns how many agent sessions and jobs of the workspace a replacement of its computer would interrupt: the sessions and
// jobs that run or wait for an answer. A job is not counted as a session.
func activeWork(c *server.Call) (sessions, jobs uint32, err error) {
	for _, bucket := range []string{session.BucketRunning, session.BucketAsking} {
		for _, archived := range []bool{false, true} {
			for after, more := "", true; more; more = after != "" {
				rows, next, err := listSessionsAs(c, entity.Platform(), session.ScopeAll, bucket, &sessionv1.Filter{Archived: archived}, after, 100)
				if err != nil {
					return 0, 0, err
				}
				for _, row := range rows {
					switch {
					case archived && row.GetGlobalArchivedAt() == 0: // a person has archived it, and it is in both ranges
					case row.GetMachine() != nil:
						jobs++
					default:
						sessions++
					}
				}
				after = next
			}
		}
	}
	return sessions, jobs, nil
}

// defaultSessions returns the ids of the default sessions of the workspace.
func defaultSessions(c *server.Call) ([]string, error) {
	found, err := server.Ask[*workspacev1.DefaultSessions](c, workspaceQuery(c, &workspacev1.ReadDefaultSessions{}))
	var ids []string
	for _, id := range found.GetSessions() {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, err
}
