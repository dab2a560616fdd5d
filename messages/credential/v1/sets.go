package credentialv1

import "google.golang.org/protobuf/proto"

// Command is what a credential can be asked to do or to tell.
//
//sumtype:decl
type Command interface {
	proto.Message
	credentialCommand()
}

func (*RegisterCredential) credentialCommand() {}
func (*RevokeCredential) credentialCommand()   {}
func (*UseCredential) credentialCommand()      {}
func (*DescribeCredential) credentialCommand() {}

// Event is what happened to a credential.
//
//sumtype:decl
type Event interface {
	proto.Message
	credentialEvent()
}

func (*CredentialRegistered) credentialEvent() {}
func (*CredentialRevoked) credentialEvent()    {}
func (*CredentialUsed) credentialEvent()       {}
