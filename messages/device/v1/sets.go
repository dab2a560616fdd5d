package devicev1

import "google.golang.org/protobuf/proto"

// Command is what a sync device can be asked to do or to tell.
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

// Event is what happened to a sync device.
//
//sumtype:decl
type Event interface {
	proto.Message
	deviceEvent()
}

func (*DeviceClaimed) deviceEvent()  {}
func (*DeviceReleased) deviceEvent() {}
