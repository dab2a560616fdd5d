package activityv1

import "google.golang.org/protobuf/proto"

// Command is what changes a workspace's activity.
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

// Query is what reads it.
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
