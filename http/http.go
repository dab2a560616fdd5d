// Package http serves the platform's API over HTTP.
//
// One table (routes.go) lists every operation: method, path, scope, whether it is declared idempotent, summary and
// handler. The OpenAPI document (openapi.yaml, served at /v1/openapi.json) says the same to clients, and a test holds
// the two against each other.
//
// A request passes, in this order:
//
//	http.go, serve.go   the listener's limits, the request's id, panics, metrics, the access log
//	router.go           path and method: 404 and 405
//	authenticate.go     the credential: 401; its rate: 429
//	access.go           the scope: 404 for who is no member, 403 for who lacks the capability
//	adapter.go          the input: 400, 413, 415; then the question to the entity and the answer's encoding
//
// so that nobody without access learns what validates. What is asked of entities is refused by entities: their
// *entity.Error becomes the answer, with the status of one table (errors.go).
//
// Handlers are typed functions from an input to an output, one file a resource. What has adapters of its own is the
// file-activity stream (stream.go), which lasts, the drive (drive.go), whose bodies have no bound, and what OAuth clients
// ask (oauth.go; the rules are http/oauth), whose forms and refusals are OAuth's.
//
// Pages for people in front of a browser (pages.go; what they look like is http/pages) are operations whose answers and
// refusals are HTML, work without scripts, and lead on by redirects. A browser holds a session's key in a cookie, and
// changes nothing at another site's bidding.
//
// Operators look after people, workspaces and backups through Admin, a handler of its own for a Unix socket (admin.go); it
// authenticates nobody.
package http

import (
	"context"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
)

// Asker sends commands to entities.
type Asker interface {
	// Ask sends a command to the entity that it names, wherever it lives, and returns its reply. Refusals are
	// *entity.Error; a reply that changed something is durable.
	Ask(ctx context.Context, c entity.Command) (proto.Message, error)
	// Settle waits until every reaction to what the entity has recorded so far is done. What follows from those reactions
	// for other entities is settled in turn. Errors: unavailable if the entity's reactions are parked.
	Settle(ctx context.Context, kind, identity string) error
}

// Streams opens live streams of file activity.
type Streams interface {
	// Subscribe starts to listen and returns what runs the stream, so that nothing falls between history and live.
	// follow blocks until ctx ends (nil), the access ends (*entity.Error) or Send failed, and Send is not called after
	// it returned. A subscription whose follow never runs ends with ctx.
	Subscribe(ctx context.Context, s activity.Subscription) (follow func(ctx context.Context) error, err error)
}

// Drive serves the files of workspaces as WebDAV.
type Drive interface {
	// ServeDrive answers a request that is authenticated and authorized. The URL is as the client sent it, with prefix
	// before the path on the drive. It returns the error with which the access was refused or ended meanwhile, for the
	// caller to answer; all other errors it answers itself.
	ServeDrive(w http.ResponseWriter, r *http.Request, prefix string, access entity.DriveAccess) error
	// Exists tells whether a path leads to a file or a folder now; empty is the root. It fails where the drive cannot be
	// read.
	Exists(ctx context.Context, workspaceID, path string) (bool, error)
}
