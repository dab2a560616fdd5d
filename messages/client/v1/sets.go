package clientv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of an OAuth client.
//
//sumtype:decl
type Command interface {
	proto.Message
	clientCommand()
}

func (*RegisterClient) clientCommand() {}
func (*DescribeClient) clientCommand() {}

// Event is the sealed set of the events of an OAuth client.
//
//sumtype:decl
type Event interface {
	proto.Message
	clientEvent()
}

func (*ClientRegistered) clientEvent() {}
