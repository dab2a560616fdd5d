package grantv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands and queries of an OAuth grant.
//
//sumtype:decl
type Command interface {
	proto.Message
	grantCommand()
}

func (*OpenGrant) grantCommand()     {}
func (*RedeemCode) grantCommand()    {}
func (*Refresh) grantCommand()       {}
func (*Revoke) grantCommand()        {}
func (*Use) grantCommand()           {}
func (*DescribeGrant) grantCommand() {}

// Event is the sealed set of the events of an OAuth grant.
//
//sumtype:decl
type Event interface {
	proto.Message
	grantEvent()
}

func (*GrantOpened) grantEvent()  {}
func (*CodeRedeemed) grantEvent() {}
func (*Refreshed) grantEvent()    {}
func (*Revoked) grantEvent()      {}
func (*Used) grantEvent()         {}
