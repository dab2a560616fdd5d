// Package session has the operations of agent sessions. The API (http/api) and the tools for agents (runner/tools) call the same ones.
//
// An input passes these steps, in a request that starts a session, or that sends a message, a note or an answer:
//
//  1. The door decodes and validates it, and computes the digest of the request.
//  2. The workspace authorizes the caller (authorize), before an error can reveal anything about the workspace.
//  3. If the client's request id is known in the session, its digest is compared, and the remaining steps use the earlier input
//     (findRequest).
//  4. Attachments, the agent's AGENT.md and the working directory are looked up on the drive. The session's own rules for its start are
//     checked (CheckStart). Then a parent admits its child, or refuses the child (AdmitChild): a refused start leaves nothing.
//  5. Images are written to files beside the drive (Images.KeepImages). The input has their digests, types and sizes.
//  6. StartSession or SendInput makes the input durable. The rules authorize it and determine its author. Its command id makes it
//     idempotent also if two requests with the same request id pass step 3 together. If it is refused, the files are removed.
//  7. Deliver waits for a run that takes the input, AwaitTerminal for the end of its turn, AwaitEnds for the ends of several sessions.
package session

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/entity/skill"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
)

// Folders looks up the files and folders of drives.
type Folders interface {
	// ResolveFolder returns the path of the real folder that a path names, without links; the empty path is the root of the
	// drive. Errors: ErrNoFolder, ErrNotFolder, ErrOutsideDrive of package entity/session, the errors of the drive.
	ResolveFolder(ctx context.Context, workspaceID, path string) (real string, err error)
	// FileSize returns the size of a file in bytes. Errors: not_found if the path names no file.
	FileSize(ctx context.Context, workspaceID, path string) (int64, error)
}

// Agents reads the files of agents on the drives of workspaces.
type Agents interface {
	// Agent reads the AGENT.md in a folder. Errors: not_found if there is none, invalid_request if it is malformed, unavailable if
	// the drive cannot be read.
	Agent(ctx context.Context, workspaceID, folder string) (skill.Agent, error)
}

// Images stores the images of the inputs of sessions.
type Images interface {
	// KeepImages makes images of a session durable, which need not exist yet, and then calls commit, which makes the input durable
	// that names them. The keys of images are their SHA-256. Errors: insufficient_storage, before anything is written, if the quota of the
	// workspace or the disk has no space; unavailable; the errors of commit. If commit is refused, images that no input names are removed.
	KeepImages(ctx context.Context, workspaceID, sessionID string, images map[string][]byte, commit func() error) error
}

// Service has the dependencies of the operations. It is safe for concurrent use. Images may be nil if no input has images.
type Service struct {
	Asker entity.Asker
	// NewID returns a new id; prefix names its kind and ends in an underscore: "ses_".
	NewID   func(prefix string) string
	Folders Folders
	Agents  Agents
	Images  Images
}

// For returns a request of a caller in a workspace.
func (s *Service) For(caller service.Caller, workspaceID string) Request {
	return Request{s, caller, workspaceID}
}

// Request is a request of a caller in a workspace. Its methods are the operations.
type Request struct {
	service     *Service
	caller      service.Caller
	workspaceID string
}

// Input is an input of a session in a request. The rules set its sender and its bounds.
type Input struct {
	*sessionv1.Input
	// Images has the content of the images, by their SHA-256.
	Images map[string][]byte
}

// Accepted is an input that is durable.
type Accepted struct {
	SessionID string
	Seq       uint64
	// Created reports that the request has created the session.
	Created bool
}

func ask[Reply proto.Message](ctx context.Context, r Request, command entity.Command) (Reply, error) {
	return service.Ask[Reply](ctx, r.service.Asker, r.caller, command)
}

// authorize asks the workspace whether the caller may change sessions. Errors: not_found, forbidden, workspace_suspended,
// workspace_closed.
func (r Request) authorize(ctx context.Context) error {
	_, err := ask[*workspacev1.Authorized](ctx, r, r.toWorkspace(nil, &workspacev1.Authorize{Any: []string{entity.Sessions}, Changes: true}))
	return err
}

// toWorkspace returns a query to the workspace, as a principal; nil: as the caller.
func (r Request) toWorkspace(p *wirev1.Principal, m proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindWorkspace, Identity: r.workspaceID, Principal: p, Message: m}
}

// query returns a query to a session of the workspace.
func (r Request) query(sessionID string, m sessionv1.Command) entity.Command {
	return entity.Command{Kind: entity.KindSession, Identity: session.Identity(r.workspaceID, sessionID), Message: m}
}

// command returns a command to a session of the workspace. The router delivers it once, however often it retries.
func (r Request) command(sessionID string, m sessionv1.Command) entity.Command {
	command := r.query(sessionID, m)
	command.ID = r.service.NewID("cmd_")
	return command
}

// describe describes a session as the caller. Errors: not_found if the caller does not see it.
func (r Request) describe(ctx context.Context, sessionID string) (*sessionv1.Description, error) {
	return ask[*sessionv1.Description](ctx, r, r.query(sessionID, &sessionv1.DescribeSession{}))
}

// findRow decodes the row with a key in one of the lists of sessions, as the platform, into row. It returns false if there is none. No
// other key of the list may begin with the key, unless row tells them apart.
func (r Request) findRow(ctx context.Context, list, key string, row proto.Message) (bool, error) {
	found, err := ask[*wirev1.Page](ctx, r, r.toWorkspace(entity.Platform(), &wirev1.List{Name: list, Prefix: []byte(key), Limit: 1}))
	if err != nil || len(found.GetRows()) == 0 {
		return false, err
	}
	return true, proto.Unmarshal(found.GetRows()[0], row)
}
