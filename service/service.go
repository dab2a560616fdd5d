// Package service declares what the operations in the packages below it share. Each of these packages has the operations of one resource
// that take several steps, or that are offered by two of the API (http/api), the tools for agents (runner/tools) and the operators' socket
// (http/operator):
//
//	account     finding and making an account; its secrets, keys, links, grants and workspaces
//	app         reading, registering, changing and removing apps, waiting for the computer
//	computer    cancelling the task of a computer
//	domain      the hosts of a node and their certificates
//	invitation  inviting a person, opening and accepting an invitation
//	session     starting a session or a child, sending a message, a note or an answer, waiting
//
// A function is an operation: it has the steps from a validated input to the reply, sends the commands as the caller, and its comment
// names its errors. A door decodes the input before and views the reply after. An operation that is one command is none of
// these packages: its door sends the command.
package service

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Caller is the sender of a request.
type Caller struct {
	// Principal is the sender of the commands.
	Principal *wirev1.Principal
	// RequestID is the id of the request for logs; it may be empty.
	RequestID string
	// Authenticate verifies that the credential is still valid, right before a file is changed; nil: it remains valid.
	Authenticate func() error
}

// Ask sends a command to an entity and returns the reply. A command without a principal is sent as the caller.
func Ask[Reply proto.Message](ctx context.Context, a entity.Asker, c Caller, command entity.Command) (Reply, error) {
	if command.Principal == nil {
		command.Principal = c.Principal
	}
	command.RequestID = c.RequestID
	return entity.Ask[Reply](ctx, a, command)
}
