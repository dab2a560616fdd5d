package clientv1

import "google.golang.org/protobuf/proto"

// Command is what an OAuth client can be asked to do or to tell.
//
//sumtype:decl
type Command interface {
	proto.Message
	clientCommand()
}

func (*RegisterClient) clientCommand() {}
func (*DescribeClient) clientCommand() {}

// Event is what happened to an OAuth client.
//
//sumtype:decl
type Event interface {
	proto.Message
	clientEvent()
}

func (*ClientRegistered) clientEvent() {}
