// Package operator serves the operations of the operators' socket. The operators of an installation manage its people, workspaces,
// domains, backups and parked reactions with it. It authenticates no caller: the file permissions of the socket decide on connections.
package operator

import (
	"context"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/http/server"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/service"
	"github.com/atelier-run/atelier/service/app"
)

const (
	adminPeople     = "/admin/users"
	adminWorkspaces = "/admin/workspaces"
	adminWorkspace  = adminWorkspaces + "/{slug}"
	adminReactions  = "/admin/reactions"
	adminDomains    = "/admin/domains"
)

// Directory lists the people and workspaces of the installation. It reads stored rows, activates no entity, and checks no
// access, because it is for operators.
type Directory interface {
	// Owners returns the ids of the entities that have rows in a list, in a stable order: at most limit of them, after the
	// id after. An empty result ends the list. Errors: *entity.Error.
	Owners(ctx context.Context, list, after string, limit int) ([]string, error)
	// Rows returns a page of the list of one entity. Errors: *entity.Error.
	Rows(ctx context.Context, owner string, asked *wirev1.List) (*wirev1.Page, error)
}

// emptyDirectory is a Directory without rows.
type emptyDirectory struct{}

func (emptyDirectory) Owners(context.Context, string, string, int) ([]string, error) { return nil, nil }

func (emptyDirectory) Rows(context.Context, string, *wirev1.List) (*wirev1.Page, error) {
	return &wirev1.Page{}, nil
}

// Progress returns the number of bytes that a backup or a restore has processed in its current attempt and the total, which
// may be an estimate. known is false if this process is not running the task.
type Progress func(taskID string) (done, total int64, known bool)

// Options are the dependencies of the operations, besides entities.
type Options struct {
	// Apps has the operations of apps, and is required.
	Apps *app.Service
	// Directory is empty if it is nil.
	Directory Directory
	// Reactions has no parked streams if it is nil.
	Reactions Reactions
	// Progress knows no task if it is nil.
	Progress Progress
	// BackUpNode refuses if it is nil.
	BackUpNode BackUpNode
	// RenewCertificate refuses if it is nil.
	RenewCertificate RenewCertificate
	// CheckJournal refuses if it is nil.
	CheckJournal CheckJournal
}

// Routes returns the table of the operators' socket. Its JSON is for this program's own commands and may change with any
// release.
func Routes(o Options) []server.Route {
	if o.Directory == nil {
		o.Directory = emptyDirectory{}
	}
	if o.Reactions == nil {
		o.Reactions = noReactions{}
	}
	if o.Progress == nil {
		o.Progress = func(string) (done, total int64, known bool) { return 0, 0, false }
	}
	if o.BackUpNode == nil {
		o.BackUpNode = func(context.Context, string, func(NodeProgress)) (NodeBackup, error) {
			return NodeBackup{}, entity.Errorf(entity.Unavailable, "this node cannot be backed up")
		}
	}
	if o.CheckJournal == nil {
		o.CheckJournal = func(context.Context, func(JournalFault)) error {
			return entity.Errorf(entity.Unavailable, "this node has no journal to check")
		}
	}
	if o.RenewCertificate == nil {
		o.RenewCertificate = func(context.Context, string) error { return server.ErrNotFound }
	}
	return slices.Concat(
		people{o.Directory}.routes(),
		impersonations{}.routes(),
		workspaces{o.Directory, o.Progress}.routes(),
		replicas{o.Apps}.routes(),
		domains{o.Directory, o.RenewCertificate}.routes(),
		backups{}.routes(),
		nodeBackups{o.BackUpNode}.routes(),
		checks{o.CheckJournal}.routes(),
		reactions{o.Reactions}.routes(),
		auditLogs{o.Directory}.routes(),
	)
}

// operatorPage is a page of a list as JSON.
type operatorPage[Item any] struct {
	Items []Item `json:"items"`
	// Next is the parameter after of the next page; empty for the last page.
	Next string `json:"next,omitzero"`
}

// decodeOwnersPage decodes the parameters after, which is an id, and limit.
func decodeOwnersPage(c *server.Call) (server.Listing, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "after", "limit")
	if err != nil {
		return server.Listing{}, err
	}
	return server.Listing{After: q.Text("after"), Limit: q.Limit()}, q.Err
}

// readOwners returns a page of the entities that have rows in a list, each converted with view.
func readOwners[Item any](c *server.Call, d Directory, list string, in server.Listing, view func(id string) (Item, error)) (operatorPage[Item], error) {
	ids, err := d.Owners(c.Context, list, in.After, int(in.Limit))
	if err != nil {
		return operatorPage[Item]{}, err
	}
	found := operatorPage[Item]{Items: make([]Item, len(ids))}
	if len(ids) == int(in.Limit) {
		found.Next = ids[len(ids)-1]
	}
	return found, service.ForEach(len(ids), func(i int) (err error) {
		found.Items[i], err = view(ids[i])
		return err
	})
}

// resolvePathWorkspace returns the workspace that the slug in the path names. Errors: not_found.
func resolvePathWorkspace(c *server.Call) (*server.Workspace, error) {
	name := strings.ToLower(c.Variable("slug"))
	if slug.Check(name) != nil {
		return nil, server.ErrNotFound
	}
	return c.ResolveSlug(name)
}

// readRows returns a page of the list of one entity.
func readRows(c *server.Call, d Directory, owner, list string, in server.Listing) (*wirev1.Page, error) {
	return d.Rows(c.Context, owner, &wirev1.List{Name: list, After: []byte(in.After), Limit: in.Limit})
}
