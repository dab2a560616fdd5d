package credentialv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a credential.
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

// Event is the sealed set of the events of a credential.
//
//sumtype:decl
type Event interface {
	proto.Message
	credentialEvent()
}

func (*CredentialRegistered) credentialEvent() {}
func (*CredentialRevoked) credentialEvent()    {}
func (*CredentialUsed) credentialEvent()       {}
