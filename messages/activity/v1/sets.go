package activityv1

import "google.golang.org/protobuf/proto"

// Command is the sealed set of the commands that change the activity of a workspace.
//
//sumtype:decl
type Command interface {
	proto.Message
	activityCommand()
}

func (*Intend) activityCommand()         {}
func (*Complete) activityCommand()       {}
func (*Abandon) activityCommand()        {}
func (*Record) activityCommand()         {}
func (*FlushSummaries) activityCommand() {}
func (*WriteIndexes) activityCommand()   {}

// Query is the sealed set of the queries of the activity of a workspace.
//
//sumtype:decl
type Query interface {
	proto.Message
	activityQuery()
}

func (*ListIntents) activityQuery()       {}
func (*ReadHistory) activityQuery()       {}
func (*ReadFeed) activityQuery()          {}
func (*ReadSeenBy) activityQuery()        {}
func (*ReadLatestWriters) activityQuery() {}
func (*ReadNames) activityQuery()         {}
