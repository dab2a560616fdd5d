// Package api serves the operations of the public API.
//
// Each file has the operations of one resource: the bodies of its requests and answers, a type whose methods are the
// handlers, and its rows of the table of routes. The OpenAPI document (openapi.yaml) describes the operations to clients, and
// a test compares the two. `make generate` writes the files that are served for it: openapi.json at /v1/openapi.json, and
// reference.html at /docs.
//
// The pages for browsers and the operators' commands use the same operations: lookups.go has the questions to entities that
// they share, and links.go the links that people follow from a mail.
package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/http/server"
)

// Streams opens live streams of file activity.
type Streams interface {
	// Subscribe starts to listen and returns the function that runs the stream, so that nothing falls between history and
	// live. follow blocks until ctx ends (nil), the access ends (*entity.Error) or Send failed, and does not call Send after
	// it returned. A subscription whose follow never runs ends with ctx.
	Subscribe(ctx context.Context, s activity.Subscription) (follow func(ctx context.Context) error, err error)
}

// Drive serves the files of workspaces as WebDAV.
type Drive interface {
	// ServeDrive answers a request that is authenticated and authorized. The URL is as the client sent it, with prefix
	// before the path on the drive. It returns the error with which the access was refused or ended meanwhile, for the
	// caller to answer; it answers all other errors itself.
	ServeDrive(w http.ResponseWriter, r *http.Request, prefix string, access entity.DriveAccess) error
	// Exists reports whether a path names a file or a folder now; empty is the root. It fails if the drive cannot be read.
	Exists(ctx context.Context, workspaceID, path string) (bool, error)
}

// Options are what the operations need besides entities. Streams, Drive and Links are required.
type Options struct {
	Streams Streams
	Drive   Drive
	Links   *Links
	// Workspaces is how many workspaces a person may have created and not deleted; negative: any number.
	Workspaces int
}

// Routes returns the table of the public API. The router tries paths in this order: hot ones come first.
func Routes(o Options) []server.Route {
	return slices.Concat(
		fileActivity{o.Streams}.routes(),
		drive{o.Drive}.routes(),
		whoami{}.routes(),
		workspaces{o.Workspaces}.routes(),
		settings{}.routes(),
		computers{o.Drive}.routes(),
		anchors{o.Drive}.routes(),
		auditLog{}.routes(),
		members{}.routes(),
		invitations{o.Links}.routes(),
		profile{}.routes(),
		APIKeys{}.routes(),
		Grants{}.routes(),
		machines{}.routes(),
		document{}.routes(),
	)
}
