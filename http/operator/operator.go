// Package operator serves the operations of the admin socket, with which the operators of an installation look after its
// people, workspaces, backups and parked reactions. It authenticates nobody: the socket's file permissions do.
package operator

import (
	"context"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/http/server"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

const (
	adminPeople     = "/admin/users"
	adminWorkspaces = "/admin/workspaces"
	adminWorkspace  = adminWorkspaces + "/{slug}"
	adminReactions  = "/admin/reactions"
)

// Directory lists the people and workspaces of the installation. It reads what is recorded, activates no entity and requires
// no access: it is for operators.
type Directory interface {
	// Owners returns the owners that have rows in a list, in a stable order: at most limit of them, after one of them. An
	// empty result ends the list. Errors: *entity.Error.
	Owners(ctx context.Context, list, after string, limit int) ([]string, error)
	// Rows returns a page of one owner's list. Errors: *entity.Error.
	Rows(ctx context.Context, owner string, asked *wirev1.List) (*wirev1.Page, error)
}

// emptyDirectory lists nothing.
type emptyDirectory struct{}

func (emptyDirectory) Owners(context.Context, string, string, int) ([]string, error) { return nil, nil }

func (emptyDirectory) Rows(context.Context, string, *wirev1.List) (*wirev1.Page, error) {
	return &wirev1.Page{}, nil
}

// Progress returns the number of bytes that a backup or a restore has processed in its current attempt and the total, which
// may be an estimate. known is false if this process is not running the task.
type Progress func(taskID string) (done, total int64, known bool)

// Options are what the operations need besides entities.
type Options struct {
	// Directory is empty if it is nil.
	Directory Directory
	// Reactions has no parked streams if it is nil.
	Reactions Reactions
	// Progress knows no task if it is nil.
	Progress Progress
}

// Routes returns the table of the Unix socket: JSON for the commands of this machine's operators, with no promise to others.
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
	return slices.Concat(
		people{o.Directory}.routes(),
		impersonations{}.routes(),
		workspaces{o.Directory, o.Progress}.routes(),
		backups{}.routes(),
		reactions{o.Reactions}.routes(),
		auditLogs{o.Directory}.routes(),
	)
}

// roster is a page for operators.
type operatorPage[Item any] struct {
	Items []Item `json:"items"`
	// Next continues it; left out: this was the end.
	Next string `json:"next,omitzero"`
}

// decodeOwners reads which page of everybody is asked for; after is an id.
func decodeOwnersPage(c *server.Call) (server.Listing, error) {
	q, err := server.ParseQuery(c.Request.URL.RawQuery, "after", "limit")
	if err != nil {
		return server.Listing{}, err
	}
	return server.Listing{After: q.Text("after"), Limit: q.Limit()}, q.Err
}

// readOwners returns a page of the owners that have rows in a list, as view shows each.
func readOwners[Item any](c *server.Call, d Directory, list string, in server.Listing, view func(id string) (Item, error)) (operatorPage[Item], error) {
	ids, err := d.Owners(c.Context, list, in.After, int(in.Limit))
	if err != nil {
		return operatorPage[Item]{}, err
	}
	found := operatorPage[Item]{Items: make([]Item, len(ids))}
	if len(ids) == int(in.Limit) {
		found.Next = ids[len(ids)-1]
	}
	return found, server.ForEach(len(ids), func(i int) (err error) {
		found.Items[i], err = view(ids[i])
		return err
	})
}

// namedWorkspace returns the workspace that the path names now. Errors: not_found.
func resolvePathWorkspace(c *server.Call) (*server.Workspace, error) {
	name := strings.ToLower(c.Variable("slug"))
	if slug.Check(name) != nil {
		return nil, server.ErrNotFound
	}
	return c.ResolveSlug(name)
}

// readRows returns a page of an owner's list.
func readRows(c *server.Call, d Directory, owner, list string, in server.Listing) (*wirev1.Page, error) {
	return d.Rows(c.Context, owner, &wirev1.List{Name: list, After: []byte(in.After), Limit: in.Limit})
}
