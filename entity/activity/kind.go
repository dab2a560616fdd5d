package activity

import (
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// Reading is the need of a caller that reads or follows a workspace's activity.
var Reading = entity.Reads(entity.FilesRead)

// Kind describes activity to the runtime: it belongs to the workspace whose identity it has. Its state lies mostly in the
// journal's indexes, so that the runtime carries its commands out with Decide and Evolve of this package.
var Kind = entity.Kind{
	Name: entity.KindActivity, Owner: entity.KindWorkspace, Version: 1, Retention: entity.CommandRetention,
	IsCommand: func(m proto.Message) bool {
		switch m.(type) {
		case activityv1.Command, activityv1.Query:
			return true
		}
		return false
	},
	// A row is stored as the JSON that clients get, and not as a message.
	IsEvent: func(proto.Message) bool { return false },
	Access:  accessOf,
	// Open folds are the state whose timer writes their summaries.
	EffectIndexes: []string{OpenFolds},
}

// accessOf returns who may send a command or a query; the workspace checks it.
func accessOf(m proto.Message) (entity.Access, error) {
	switch m.(type) {
	case *activityv1.ReadHistory, *activityv1.ReadFeed, *activityv1.ReadSeenBy, *activityv1.ReadLatestWriters:
		return entity.Requires(Reading), nil
	case *activityv1.Intend:
		// The author's right is checked when the change is decided, however long its content took to arrive.
		return entity.Requires(entity.Changes(entity.FilesWrite)), nil
	case activityv1.Query, activityv1.Command:
		return entity.PlatformOnly(), nil
	}
	return entity.Access{}, entity.Errorf(entity.InvalidRequest, "%s is not a command of activity", m.ProtoReflect().Descriptor().Name())
}
