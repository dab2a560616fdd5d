package entity_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/kinds"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

func TestShallowCopy(t *testing.T) {
	for _, k := range kinds.All {
		if k.Zero == nil {
			continue
		}
		state := k.Zero("identity")
		entitytest.Populate(state.ProtoReflect())
		if copied := entity.ShallowCopy(state); copied == state || !proto.Equal(copied, state) {
			t.Errorf("%s: the copy of %v is %v", k.Name, state, copied)
		}
	}
	member := &workspacev1.Membership{UserId: "usr_1"}
	original := &workspacev1.Workspace{Name: "old", Members: map[string]*workspacev1.Membership{"usr_1": member}}
	copied := entity.ShallowCopy(original)
	if copied.Name = "new"; original.GetName() != "old" {
		t.Error("setting a field of the copy changed the original")
	}
	if copied.GetMembers()["usr_1"] != member {
		t.Error("the copy does not share the member with the original")
	}
	if copied := entity.ShallowCopy[*workspacev1.Workspace](nil); !proto.Equal(copied, &workspacev1.Workspace{}) {
		t.Errorf("the copy of a nil message is %v", copied)
	}
}

func TestWithChanged(t *testing.T) {
	before := map[string]*workspacev1.Membership{"usr_1": {UserId: "usr_1", Name: "old"}}
	rename := func(m *workspacev1.Membership) { m.Name = "new" }
	after := entity.WithChanged(before, "usr_1", rename)
	if before["usr_1"].GetName() != "old" || after["usr_1"].GetName() != "new" || after["usr_1"].GetUserId() != "usr_1" {
		t.Errorf("before: %v, after: %v", before, after)
	}
	if same := entity.WithChanged(before, "usr_2", rename); len(same) != 1 || same["usr_1"] != before["usr_1"] {
		t.Errorf("changing an absent key returned %v", same)
	}
}

func BenchmarkShallowCopy(b *testing.B) {
	state := &workspacev1.Workspace{}
	entitytest.Populate(state.ProtoReflect())
	b.ReportAllocs()
	for b.Loop() {
		entity.ShallowCopy(state)
	}
}
