// Package api serves the operations of the public API.
//
// Each file has the operations of one resource: the bodies of its requests and responses, a type with the handlers as
// methods, and its rows of the table of routes. The OpenAPI document (openapi.yaml) describes the operations to clients,
// and a test compares the two. `make generate` writes the files that are served for it: openapi.json at /v1/openapi.json,
// and reference.html at /docs.
//
// The pages for browsers and the operators' commands use the same operations: lookups.go has the queries and commands that
// they share, and links.go the links in mails.
//
// # Creating and renaming a workspace
//
// There are no transactions across entities. A slug is an entity, and the order of its stream decides which claim wins:
//
//  1. workspaces.create or workspaces.rename validates the input. create reserves a place among the workspaces that the
//     person may have created (reserve); rename authorizes the caller (server.Call.Authorize).
//  2. claimSlug sends ClaimSlug to the slug. For a rename the claim carries its own id, the caller's principal and the
//     new name. The slug refuses it with slug_taken if another workspace has it.
//  3. The reaction of the slug sends the workspace CreateWorkspace, or RenameWorkspace as the caller. The workspace
//     authorizes the rename again, in order with changes of its members. If it refuses the rename, the reaction sends the
//     slug ReleaseSlug, with the id of the refused claim.
//  4. The reactions of a new workspace add it to its creator's list and create its computer. The reactions of a renamed
//     workspace send its previous slug ReleaseSlug, which reserves that slug for the workspace for some time.
//  5. claimSlug waits for all that: for the slug (Settle), which includes step 3, then for the workspace, which includes
//     step 4, and removes the slugs from the cache of server.
//  6. checkRenamed asks the slug for the outcome of this claim. After a creation that was refused, releaseReservation
//     returns the place.
//
// If the process ends in between, the reactions continue after the next start.
package api

import (
	"context"
	"net/http"
	"slices"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/skill"
	"github.com/atelier-run/atelier/http/server"
	appservice "github.com/atelier-run/atelier/service/app"
	"github.com/atelier-run/atelier/service/invitation"
	sessionservice "github.com/atelier-run/atelier/service/session"
)

// Streams opens live streams of file activity; package server describes the whole flow.
type Streams interface {
	// Subscribe registers for a workspace's activity and returns the function that runs the stream, so that no event falls
	// between history and live events. follow blocks until ctx ends (nil), the access ends (*entity.Error) or s.Send fails,
	// and does not call s.Send after it has returned. If follow is never called, the subscription ends with ctx. Errors:
	// *entity.Error.
	Subscribe(ctx context.Context, s activity.Subscription) (follow func(ctx context.Context) error, err error)
}

// Drive serves the files of workspaces as WebDAV.
type Drive interface {
	// ServeDrive answers a request that is authenticated and authorized. r.URL is as the client sent it, with prefix before
	// the path on the drive. If the access was refused or has ended in the meantime, ServeDrive returns the *entity.Error,
	// for the caller to answer; it answers all other errors itself.
	ServeDrive(w http.ResponseWriter, r *http.Request, prefix string, access entity.DriveAccess) error
	// ServeUpload is ServeDrive for a request with a body that becomes a new file at a path on the drive. prefix is for the URLs in the
	// answer.
	ServeUpload(w http.ResponseWriter, r *http.Request, prefix, path string, access entity.DriveAccess) error
	// ServeAbove answers OPTIONS and PROPFIND on a folder above the drives. The caller has set the header Allow of the response to OPTIONS.
	// path is the URL path of the folder, without a slash at its end. list returns the names of the folders in it; ServeAbove returns the
	// error of list, for the caller to answer.
	ServeAbove(w http.ResponseWriter, r *http.Request, path string, list func() ([]string, error)) error
	// Exists reports whether a path names a file or a folder; the empty path is the root. It fails if the drive cannot be
	// read.
	Exists(ctx context.Context, workspaceID, path string) (bool, error)
}

// Skills reads the files of skills and agents on the drives of workspaces.
type Skills interface {
	// List returns the skills of a working directory, a path on the drive or "" for the root, in the order of their Position.
	// Errors: invalid_request if the path is no folder, unavailable if the drive cannot be read.
	List(ctx context.Context, workspaceID, cwd string) ([]skill.Skill, error)
	sessionservice.Agents
}

// Options are the dependencies of the operations, besides entities. Streams, Drive, Skills, Links, SessionService and AppService are required.
type Options struct {
	Streams Streams
	Drive   Drive
	Skills  Skills
	Links   *invitation.Links
	// Sessions configures the operations of agent sessions. SessionService has the steps of the operations.
	Sessions       SessionOptions
	SessionService *sessionservice.Service
	// Apps configures the operations of apps. AppService has the steps of the operations.
	Apps       AppOptions
	AppService *appservice.Service
	// Computers runs processes; nil: the server runs none, and refuses to.
	Computers Computers
	// Workspaces is the number of workspaces that a person may have created and not deleted; negative: no limit.
	Workspaces int
}

// Routes returns the table of the public API. The router tries paths in this order, so that frequent ones come first.
func Routes(o Options) []server.Route {
	return slices.Concat(
		fileActivity{o.Streams}.routes(),
		drive{o.Drive}.routes(),
		sessions{o.Sessions.withDefaults(), o.Drive, o.SessionService}.routes(),
		apps{o.Apps.withDefaults(), o.AppService}.routes(),
		whoami{}.routes(),
		workspaces{o.Workspaces}.routes(),
		settings{}.routes(),
		computers{o.Drive}.routes(),
		processes{o.Computers}.routes(),
		anchors{o.Drive}.routes(),
		agents{o.Skills, o.SessionService}.routes(),
		skills{o.Skills}.routes(),
		auditLog{}.routes(),
		members{}.routes(),
		invitations{o.Links}.routes(),
		profile{}.routes(),
		apiKeys{}.routes(),
		limitedKeys{}.routes(),
		grants{}.routes(),
		machines{}.routes(),
		document{}.routes(),
		above{o.Drive}.routes(),
	)
}
