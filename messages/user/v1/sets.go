package userv1

import "google.golang.org/protobuf/proto"

// Command is what a person can be asked to do or to tell.
//
//sumtype:decl
type Command interface {
	proto.Message
	userCommand()
}

func (*CreateUser) userCommand()    {}
func (*JoinWorkspace) userCommand() {}
func (*IssueApiKey) userCommand()   {}
func (*RevokeApiKey) userCommand()  {}
func (*DescribeUser) userCommand()  {}
func (*ListApiKeys) userCommand()   {}

// Event is what happened to a person.
//
//sumtype:decl
type Event interface {
	proto.Message
	userEvent()
}

func (*UserCreated) userEvent()     {}
func (*WorkspaceJoined) userEvent() {}
func (*ApiKeyIssued) userEvent()    {}
func (*ApiKeyRevoked) userEvent()   {}
