package grantv1

import "google.golang.org/protobuf/proto"

// Command is what a grant can be asked to do or to tell.
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

// Event is what happened to a grant.
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
