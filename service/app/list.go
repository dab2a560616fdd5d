package app

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Listing is a request for a page of apps.
type Listing struct {
	// Filter selects apps, and is required. With the field containing, the page has the deepest app that contains the path, if there is one.
	Filter *appv1.Filter
	// After is the position at which the previous page ended, and AfterSlug the slug of its last app; both are empty for the first page.
	After, AfterSlug string
	// Limit is the greatest number of apps.
	Limit int32
}

// Page is a page of apps.
type Page struct {
	Apps []*appv1.Description
	// Next is the position at which the page ends; empty: the page is the last page.
	Next string
	// MayChange reports whether the caller may register and change apps now.
	MayChange bool
}

// List returns a page of the apps of the workspace in the order of registration, which have followed all earlier changes of the drive.
// Errors: not_found, also if no app has the slug AfterSlug, forbidden.
func (r Request) List(ctx context.Context, in Listing) (Page, error) {
	call, err := r.catchUp(ctx, false)
	if err != nil {
		return Page{}, err
	}
	if in.AfterSlug != "" {
		anchor, err := r.Find(ctx, in.AfterSlug)
		if err != nil {
			return Page{}, err
		}
		in.After = entity.AscendingKey(anchor.GetPosition())
	}
	var page Page
	if page.MayChange, err = r.mayChange(ctx, call); err != nil {
		return Page{}, err
	}
	read := r.readApps
	if in.Filter.Containing != nil {
		read = r.readDeepest
	}
	var rows []*appv1.App
	if rows, page.Next, err = read(ctx, in); err != nil {
		return Page{}, err
	}
	for _, row := range rows {
		page.Apps = append(page.Apps, &appv1.Description{App: row, Controls: app.ControlsOf(call, row)})
	}
	return page, nil
}

// readApps returns a page of the apps that match the filter, and the position after the page.
func (r Request) readApps(ctx context.Context, in Listing) ([]*appv1.App, string, error) {
	filter, err := proto.Marshal(in.Filter)
	if err != nil {
		return nil, "", err
	}
	found, err := ask[*wirev1.Page](ctx, r, r.toWorkspace(&wirev1.List{Name: app.List, Filter: filter, After: []byte(in.After), Limit: in.Limit}))
	if err != nil {
		return nil, "", err
	}
	rows := make([]*appv1.App, len(found.GetRows()))
	for i, row := range found.GetRows() {
		rows[i] = &appv1.App{}
		if err := proto.Unmarshal(row, rows[i]); err != nil {
			return nil, "", err
		}
	}
	return rows, string(found.GetNext()), nil
}

// readDeepest returns the app with the deepest of the folders that contain the path of the filter, if there is one. An app without an
// existing folder contains nothing.
func (r Request) readDeepest(ctx context.Context, in Listing) ([]*appv1.App, string, error) {
	var deepest *appv1.App
	in.Limit = 100
	for more := true; more; more = in.After != "" {
		rows, next, err := r.readApps(ctx, in)
		if err != nil {
			return nil, "", err
		}
		for _, row := range rows {
			if row.GetFolderState() == appv1.FolderState_FOLDER_STATE_ACTIVE && len(row.GetPath()) > len(deepest.GetPath()) {
				deepest = row
			}
		}
		in.After = next
	}
	if deepest == nil {
		return nil, "", nil
	}
	return []*appv1.App{deepest}, "", nil
}
