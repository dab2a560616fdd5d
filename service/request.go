package service

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// A Request is a request of a caller, with what the steps of the operations of accounts and invitations use. The doors implement it.
type Request interface {
	// Sender returns the caller; without a Principal if the request is not authenticated.
	Sender() Caller
	// Ask sends a command to an entity and returns the reply. A command without a principal is sent as the caller.
	Ask(command entity.Command) (proto.Message, error)
	// Settle waits until all reactions to the events that an entity has recorded so far are done; see entity.AskSettler.
	Settle(kind, identity string) error
	// Outlast returns the request with another end: a time from now, also if its sender has gone.
	Outlast(d time.Duration) (Request, context.CancelFunc)
	// EndCredential makes this process refuse a credential or grant that was revoked, and ends its streams and transfers. Other members
	// refuse it within a second.
	EndCredential(id string)
	// InvalidateUser makes this process look up the credentials of a user again; if end is true, their streams and transfers end.
	InvalidateUser(userID string, end bool)
	// NewID returns a new id; prefix names its kind and ends in an underscore: "ws_".
	NewID(prefix string) string
	Now() time.Time
	Log() *slog.Logger
	// Link returns the public URL of a path of the server.
	Link(path string) string
}

// Send sends a command of a request to an entity and returns the reply.
func Send[Reply proto.Message](r Request, command entity.Command) (Reply, error) {
	reply, err := r.Ask(command)
	return entity.ReplyAs[Reply](reply, err)
}

// SendAsPlatform sends a query of the platform and returns the reply.
func SendAsPlatform[Reply proto.Message](r Request, kind, identity string, m proto.Message) (Reply, error) {
	return Send[Reply](r, entity.Command{Kind: kind, Identity: identity, Principal: entity.Platform(), Message: m})
}

// PlatformCommand returns a command of the platform, with an id.
func PlatformCommand(r Request, kind, identity string, m proto.Message) entity.Command {
	return entity.Command{Kind: kind, Identity: identity, Principal: entity.Platform(), ID: r.NewID("cmd_"), Message: m}
}

// CallerCommand returns a command, with an id, that changes the caller's account.
func CallerCommand(r Request, m proto.Message) entity.Command {
	return entity.Command{Kind: entity.KindUser, Identity: r.Sender().Principal.GetUserId(), ID: r.NewID("cmd_"), Message: m}
}

// SettleCaller waits until the reactions to changes of the caller's account are done.
func SettleCaller(r Request) error {
	return r.Settle(entity.KindUser, r.Sender().Principal.GetUserId())
}

// DescribeWorkspace describes a workspace, as the platform. Errors: not_found.
func DescribeWorkspace(r Request, id string) (*workspacev1.Workspace, error) {
	found, err := SendAsPlatform[*workspacev1.Description](r, entity.KindWorkspace, id, &workspacev1.DescribeWorkspace{})
	return found.GetWorkspace(), err
}

// concurrency bounds the concurrent calls of ForEach.
const concurrency = 16

// ForEach calls work with 0 to n-1, at most 16 calls at a time. It returns the first error, after all calls that began have
// returned.
func ForEach(n int, work func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(concurrency)
	for i := range n {
		group.Go(func() error { return work(i) })
	}
	return group.Wait()
}
