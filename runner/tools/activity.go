package tools

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// activityTools returns the tools for the activity of files, and for workspaces.
func activityTools() []*tool {
	workspaces := define(onlyElsewhere, "list_workspaces", "List the workspaces that the credential reaches, with the slugs that the "+
		"other tools need.", reads, listWorkspaces)
	workspaces.isPersonal = true
	return []*tool{
		define(everybody, "read_activity", "Read who has created, changed, renamed and deleted which files, in order. Keep the nextSeq of "+
			"the result to read later what has happened since.", reads, readActivity),
		define(everybody, "last_writers", "Find out who changed files of a folder last, and when.", reads, lastWriters),
		workspaces,
	}
}

type activityIn struct {
	SinceSeq uint64 `json:"sinceSeq,omitzero" jsonschema:"only rows after this seq; omitted: from the first row" bounds:"0:9007199254740991"`
	Limit    int32  `json:"limit,omitzero" jsonschema:"the number of rows, 50 if omitted" bounds:"1:100"`
	Path     string `json:"path,omitzero" jsonschema:"only this file, or this folder and everything in it" bounds:"1:4096"`
	Reads    bool   `json:"reads,omitzero" jsonschema:"also rows of reads"`
}

type activityOut struct {
	Rows []ActivityRow `json:"rows"`
	// NextSeq is the sinceSeq of the call that continues.
	NextSeq uint64 `json:"nextSeq"`
	// More reports that further rows exist already.
	More bool `json:"more"`
}

// ActivityRow is an operation on a path of the drive.
type ActivityRow struct {
	Seq   uint64        `json:"seq"`
	Event ActivityEvent `json:"event"`
}

// ActivityEvent describes an operation. Its author is an actor such as session:<id>, api-key:<id>, web:<id> or terminal.
type ActivityEvent struct {
	Kind      string `json:"kind"`
	Actor     string `json:"actor"`
	At        int64  `json:"at"`
	UserID    string `json:"userId,omitzero"`
	EntryKind string `json:"entryKind,omitzero"`
	Path      string `json:"path,omitzero"`
	FromPath  string `json:"fromPath,omitzero"`
	Count     uint64 `json:"count,omitzero"`
}

// readActivity reads rows of the activity. Errors: invalid_request, forbidden, not_found.
func readActivity(ctx context.Context, c *call, in activityIn) (activityOut, error) {
	out := activityOut{Rows: []ActivityRow{}, NextSeq: in.SinceSeq}
	if in.Path != "" {
		if err := entity.CheckPath(in.Path); err != nil {
			return out, err
		}
	}
	page, err := ask[*activityv1.Page](ctx, c, entity.Command{
		Kind: entity.KindActivity, Identity: c.WorkspaceID, Message: &activityv1.ReadFeed{
			Position: in.SinceSeq, Limit: cmp.Or(in.Limit, 50), Path: in.Path, Subtree: in.Path != "", Reads: in.Reads,
		},
	})
	if err != nil {
		return out, err
	}
	items := append(append([]byte("["), page.GetItems()...), ']')
	var rows []ActivityRow
	if err := json.Unmarshal(items, &rows); err != nil {
		return out, fmt.Errorf("tools: rows of the activity: %w", err)
	}
	size := 0
	for _, row := range rows {
		encoded, err := json.Marshal(row)
		if err != nil {
			return out, err
		}
		if size += len(encoded) + 1; size > maxRows { // one row is always smaller, because paths are
			out.More = true
			return out, nil
		}
		out.Rows, out.NextSeq = append(out.Rows, row), row.Seq
	}
	out.More = page.GetNext() > 0
	out.NextSeq = max(out.NextSeq, page.GetNext(), page.GetResume())
	return out, nil
}

type writersIn struct {
	Dir   string   `json:"dir,omitzero" jsonschema:"the folder; omitted: the root of the drive" bounds:"1:4096"`
	Names []string `json:"names" jsonschema:"names of files and folders in it" bounds:"1:50" each:"1:255"`
}

type writersOut struct {
	Writers []WriterView `json:"writers"`
}

// WriterView is the author of the last change of a path.
type WriterView struct {
	Path        string `json:"path"`
	Actor       string `json:"actor"`
	UserID      string `json:"userId,omitzero"`
	LastWriteAt int64  `json:"lastWriteAt"`
}

// lastWriters finds the authors of the last changes. Names that were never written are left out. Errors: invalid_request,
// forbidden, not_found.
func lastWriters(ctx context.Context, c *call, in writersIn) (writersOut, error) {
	out, folder := writersOut{Writers: []WriterView{}}, ""
	if in.Dir != "" {
		folder = in.Dir + "/"
	}
	seen := map[string]bool{}
	var names []string
	for _, name := range in.Names {
		if err := entity.CheckPath(folder + name); err != nil {
			return out, err
		}
		if strings.Contains(name, "/") {
			return out, entity.Errorf(entity.InvalidRequest, "names must be names of entries of dir")
		}
		if !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	found, err := ask[*activityv1.LatestWriters](ctx, c, entity.Command{
		Kind: entity.KindActivity, Identity: c.WorkspaceID, Message: &activityv1.ReadLatestWriters{Dir: in.Dir, Names: names},
	})
	for _, w := range found.GetWriters() {
		out.Writers = append(out.Writers, WriterView{w.GetPath(), w.GetAuthor().GetActor(), w.GetAuthor().GetUserId(), w.GetLastWriteAt()})
	}
	return out, err
}

type workspacesIn struct{}

type workspacesOut struct {
	Workspaces []WorkspaceView `json:"workspaces"`
	More       bool            `json:"more,omitzero"`
}

// WorkspaceView describes a workspace to a member.
type WorkspaceView struct {
	Slug         string   `json:"slug"`
	Name         string   `json:"name"`
	Role         string   `json:"role"`
	Capabilities []string `json:"capabilities"`
}

// maxWorkspaces bounds the workspaces of a result.
const maxWorkspaces = 100

// listWorkspaces lists the workspaces that the credential reaches, by slug.
func listWorkspaces(ctx context.Context, c *call, _ workspacesIn) (workspacesOut, error) {
	out := workspacesOut{Workspaces: []WorkspaceView{}}
	ids, err := c.workspaceIDs(ctx)
	if err != nil {
		return out, err
	}
	for _, id := range ids {
		described, err := ask[*workspacev1.Description](ctx, c, entity.Command{
			Kind: entity.KindWorkspace, Identity: id, Message: &workspacev1.DescribeWorkspace{},
		})
		switch w := described.GetWorkspace(); {
		case entity.HasCode(err, entity.NotFound, entity.Forbidden):
			continue
		case err != nil:
			return out, err
		case w.GetStatus() == workspacev1.Status_STATUS_DELETED:
			continue
		case len(out.Workspaces) == maxWorkspaces:
			out.More = true
			return out, nil
		default:
			out.Workspaces = append(out.Workspaces, WorkspaceView{
				w.GetSlug(), w.GetName(), enumName(described.GetRole().String(), "ROLE_"), described.GetCapabilities(),
			})
		}
	}
	return out, nil
}

// workspaceIDs returns the ids of the workspaces that the credential may reach: its own workspace, or the
// workspaces of the person.
func (c *call) workspaceIDs(ctx context.Context) ([]string, error) {
	if id := c.Principal.GetWorkspaceId(); id != "" {
		return []string{id}, nil
	}
	if c.Principal.GetKind() == wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM {
		return nil, nil
	}
	person, err := ask[*userv1.User](ctx, c, entity.Command{
		Kind: entity.KindUser, Identity: c.Principal.GetUserId(), Message: &userv1.DescribeUser{},
	})
	ids := make([]string, 0, len(person.GetWorkspaces()))
	for id := range person.GetWorkspaces() {
		ids = append(ids, id)
	}
	slices.Sort(ids) // ids begin with the time of the creation
	return ids, err
}
