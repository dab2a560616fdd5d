package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
)

// withdrawTime bounds the command that ends a credential whose secret nobody has got.
const withdrawTime = 10 * time.Second

// IssueSecret sends a command that creates a credential with a secret that is shown once, and waits until the credential is valid. If that
// fails, or if the client has gone, nobody gets the secret, and the credential may exist: IssueSecret sends the command withdraw, which
// ends the credential, so that a retry leaves no valid credential behind that nobody knows. Errors: those of both, unavailable.
func IssueSecret[Reply proto.Message](c *server.Call, issue, withdraw entity.Command) (Reply, error) {
	reply, err := server.Ask[Reply](c, issue)
	if err == nil {
		err = c.Settle(issue.Kind, issue.Identity)
	} else if entity.IsRefusal(err) {
		return reply, err
	}
	if err == nil {
		return reply, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context), withdrawTime)
	defer cancel()
	withdraw.ID = c.NewID("cmd_")
	if _, failure := server.Ask[proto.Message](c.With(ctx), withdraw); failure != nil && !entity.HasCode(failure, entity.NotFound) {
		c.Log().WarnContext(ctx, "a credential whose secret was not shown may exist", "kind", withdraw.Kind, "identity", withdraw.Identity, "error", failure)
	}
	return reply, err
}
