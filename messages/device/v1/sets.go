package devicev1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a sync device.
//
//sumtype:decl
type Command interface {
	proto.Message
	deviceCommand()
}

func (*ClaimDevice) deviceCommand()    {}
func (*ReleaseDevice) deviceCommand()  {}
func (*DescribeDevice) deviceCommand() {}
func (*ConfirmClaim) deviceCommand()   {}

// Event is the sealed set of the events of a sync device.
//
//sumtype:decl
type Event interface {
	proto.Message
	deviceEvent()
}

func (*DeviceClaimed) deviceEvent()  {}
func (*DeviceReleased) deviceEvent() {}
