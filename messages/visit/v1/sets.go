package visitv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of a visit.
//
//sumtype:decl
type Command interface {
	proto.Message
	visitCommand()
}

func (*GrantVisit) visitCommand()    {}
func (*RedeemVisit) visitCommand()   {}
func (*EndVisit) visitCommand()      {}
func (*DescribeVisit) visitCommand() {}

// Event is the sealed set of the events of a visit.
//
//sumtype:decl
type Event interface {
	proto.Message
	visitEvent()
}

func (*VisitGranted) visitEvent()  {}
func (*VisitRedeemed) visitEvent() {}
func (*VisitEnded) visitEvent()    {}
